// Templates that loop, grow or are no templates: one error each, quickly, naming the line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/jinja/template.h"

namespace pergola::jinja {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& source,
                     const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
                     const Limits& limits = {}) {
  try {
    const std::string text = Template(source, "t").render(variables, limits);
    return "no error, " + std::to_string(text.size()) + " bytes";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(JinjaLimits, EndlessLoopsEnd) {
  const std::string loops =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = a * b %}{% endfor %}{% endfor %}";
  EXPECT_THAT(error_of(loops), HasSubstr("too many steps"));
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(
      error_of("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}{% endcall %}"),
      HasSubstr("t:"));
}

TEST(JinjaLimits, GrowthEnds) {
  EXPECT_THAT(
      error_of(
          "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
      HasSubstr("too many steps"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
      HasSubstr("too many steps"));
  EXPECT_THAT(error_of("{{ 'ab' * 9000000000000 }}"), HasSubstr("too many steps"));
  EXPECT_THAT(error_of("{{ 'ab' * 9223372036854775807 }}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}"), HasSubstr("too many steps"));
  EXPECT_THAT(error_of("{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaa' * 100 }}{% endfor %}"),
              HasSubstr("too much text"));
  EXPECT_THAT(error_of("{{ 'a' | indent(99999999999) }}"), HasSubstr("too wide"));
  EXPECT_THAT(error_of("{{ '%99999999d' % 1 }}"), HasSubstr("t:1"));
}

TEST(JinjaLimits, DeepNestingIsRefused) {
  EXPECT_THAT(error_of("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ " + repeated("-", 5000) + "1 }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ " + repeated("not ", 5000) + "1 }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" + 1", 5000) + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" | abs", 5000) + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ a" + repeated(".a", 5000) + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" if 1", 5000) + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" if 1 else 1", 5000) + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of(repeated("{% if 1 %}", 5000)), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{% if 1 %}" + repeated("{% elif 1 %}", 5000)), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of("{% set " + repeated("(", 5000) + "x" + repeated(")", 5000) + " = 1 %}"),
              HasSubstr("nested too deep"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
      HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" or 1", 5000) + " }}"), HasSubstr("no error"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" ~ 1", 5000) + " }}"), HasSubstr("no error"));
}

TEST(JinjaLimits, ErrorsNameTheLine) {
  EXPECT_THAT(error_of("a\nb\n{{ missing.x }}"), HasSubstr("t:3: 'missing' is undefined"));
  EXPECT_THAT(error_of("a\n{% nonsense %}"), HasSubstr("t:2: the tag"));
  EXPECT_THAT(error_of("{{ 1 | frobnicate }}"), HasSubstr("the filter \"frobnicate\" is not supported"));
  EXPECT_THAT(error_of("{{ 1 is frobnicate }}"), HasSubstr("the test \"frobnicate\" is not supported"));
  EXPECT_THAT(error_of("\xFF"), HasSubstr("not UTF-8"));
  for (const char* tag : {"include 'x'", "import 'x' as y", "extends 'x'", "block x", "do 1", "debug"}) {
    EXPECT_THAT(error_of(std::string("{% ") + tag + " %}"), HasSubstr("not supported")) << tag;
  }
}

TEST(JinjaLimits, NamespacesThatHoldThemselvesDoNotLeak) {
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% set ns.me = ns %}{% macro m() %}{{ ns.me.me.x }}{% endmacro %}{% "
                       "set ns.m = m %}{{ ns.m() }}"),
              HasSubstr("no error"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{{ ns }}"), HasSubstr("cannot be printed"));
}

TEST(JinjaLimits, NumbersAtTheirEdges) {
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("{{ -9223372036854775807 - 1 }}"), HasSubstr("no error"));
  EXPECT_THAT(error_of("{{ (-9223372036854775807 - 1) // -1 }}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("{{ (-9223372036854775807 - 1) % -1 }}"), HasSubstr("no error"));
  EXPECT_THAT(error_of("{{ 2 ** 9999999999 }}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("{{ 99999999999999999999 }}"), HasSubstr("cannot be read"));
  EXPECT_THAT(error_of("{{ [1][9223372036854775807:-9223372036854775807:-9223372036854775807] }}"),
              HasSubstr("no error"));
  EXPECT_THAT(error_of("{{ range(9223372036854775807, 9223372036854775806, 9223372036854775807)|list }}"),
              HasSubstr("no error"));
  EXPECT_THAT(error_of("{{ x }}", {{"x", 18446744073709551615u}}), HasSubstr("too large"));
}

}  // namespace
}  // namespace pergola::jinja
