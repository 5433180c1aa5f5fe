#include "text/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "base/error.h"
#include "text/chat/output_parser.h"
#include "text/grammar_support.h"

namespace pergola {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::matches;

Grammar schema(const char* text) {
  return Grammar::json_schema(ordered_json::parse(text), "schema");
}

void expect(const Grammar& grammar, std::initializer_list<const char*> valid,
            std::initializer_list<const char*> invalid) {
  for (const char* text : valid) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : invalid) EXPECT_FALSE(matches(grammar, text)) << text;
}

std::string error_of(const char* text) {
  try {
    schema(text);
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(JsonObjectGrammar, TakesObjectsOnly) {
  expect(Grammar::json_object(),
         {"{}", "{ }", R"({"a":1})", R"({"a": [1, -2.5e+10, "x\n\u00e9\"", true, null, {"b": {}}], "c": "d"})",
          "{\n  \"a\": [\n    1\n  ]\n}", "{\"\xC3\xA9\": \"\xF0\x9F\x8E\x89\"}"},
         {"",
          "[]",
          "1",
          "{",
          R"({"a"})",
          R"({"a":})",
          R"({"a":1,})",
          R"({a:1})",
          R"({"a":01})",
          R"({"a":"\x"})",
          "{\"a\":\"\n\"}",
          R"({"a":+1})",
          R"({"a":1}x)",
          "{\"a\":\"\xFF\"}",
          "{\"a\":\"\xC3\"}",
          "{\"a\":\"\xED\xA0\x80\"}",
          R"({"a":"\ud800"})",
          "{          }",
          "{\n\n}",
          R"({"a":tru})"});
}

TEST(SchemaGrammar, ObjectsAndTheirMembers) {
  expect(
      schema(
          R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false})"),
      {R"({"b":"x"})", R"({"a": 1, "b": "x"})", R"({"b":"","c":null})", R"({"a":-10,"b":"y","c":null})"},
      {"{}", R"({"a":1})", R"({"b":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":"x",})", R"({,"b":"x"})",
       R"({"a":1 "b":"x"})"});
  expect(schema(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})"),
         {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {R"({"c":1})", R"({"b":1,"a":1})", R"({"a":1,})"});
  expect(
      schema(R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})"),
      {"{}", R"({"ab":1})", R"({"a":true})", R"({"abc":true})", R"({"ab":1,"é":false,"":true})"},
      {R"({"ab":true})", R"({"a":1})", R"({"ab":1,"ab":true})", R"({"a\u0062":true})"});
  expect(schema(R"({"type":"object","additionalProperties":{"type":"integer"}})"), {"{}", R"({"x":1,"y":2})"},
         {R"({"x":"1"})"});
  expect(schema(R"({"type":"object","required":["z"]})"), {R"({"z":[1]})"}, {"{}"});
  expect(schema("{}"), {"1", "[]", "{}", "\"x\"", "null"}, {"", "x"});
  expect(schema("true"), {"1"}, {});
}

TEST(SchemaGrammar, ScalarsEnumsAndAlternatives) {
  expect(schema(R"({"enum":["a",1,null,true,{"x":[1]},"a\"b"]})"),
         {"\"a\"", "1", "null", "true", R"({"x":[1]})", R"("a\"b")"}, {"a", "2", "false", "\"b\""});
  expect(schema(R"({"type":"string","enum":["a",1]})"), {"\"a\""}, {"1"});
  expect(schema(R"({"const":"x"})"), {"\"x\""}, {"\"y\"", "x"});
  expect(schema(R"({"type":["integer","null"]})"), {"5", "-5", "0", "null"}, {"5.0", "\"5\"", "05", "-"});
  expect(schema(R"({"type":"boolean"})"), {"true", "false"}, {"True", "1"});
  expect(schema(R"({"type":"number"})"), {"0", "-0", "1.5", "1e5", "1E-10", "-12.25e+3"},
         {".5", "1.", "1e", "+1", "00", "0x1", "NaN"});
  expect(
      schema(
          R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"const":"auto"}]})"),
      {"1", R"({"a":"b"})", "\"auto\""}, {"\"x\"", "{}", "1.5"});
}

TEST(SchemaGrammar, ArraysAndStrings) {
  expect(schema(R"({"type":"array","items":{"type":"integer"}})"), {"[]", "[1]", "[1, 2,3]", "[ 1 ]"},
         {"[1,]", "[\"a\"]", "[,1]", "[1"});
  expect(schema(R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})"), {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"});
  expect(schema(R"({"type":"array","minItems":1})"), {"[1]", "[{},[]]"}, {"[]"});
  expect(schema(R"({"type":"array","maxItems":0})"), {"[]"}, {"[1]"});
  expect(schema(R"({"type":"string","minLength":2,"maxLength":3})"), {"\"ab\"", "\"é🎉ü\"", R"("\n\u00e9")"},
         {"\"a\"", "\"abcd\"", "\"\""});
  expect(schema(R"({"type":"string","minLength":1})"), {"\"a\"", "\"abcdefgh\""}, {"\"\""});
  expect(schema(R"({"type":"string","pattern":"^[a-z]{2,3}-\\d+$"})"), {"\"ab-1\"", "\"abc-123\""},
         {"\"a-1\"", "\"ab-\"", "\"wxab-1\""});
  expect(schema(R"({"type":"string","pattern":"b+"})"), {"\"b\"", "\"abba\"", R"("\"b\\")"},
         {"\"a\"", "\"\"", "\"b\"\"", R"("b\")"});
  expect(schema(R"({"type":"string","pattern":"^[\"\\\\\n]$"})"), {R"("\"")", R"("\\")", R"("\n")"},
         {"\"\"\"", "\"\n\"", "\"n\""});
}

TEST(SchemaGrammar, References) {
  expect(
      schema(
          R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}})"),
      {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
      {R"({"v":1})", R"({"v":1,"next":{}})"});
  expect(schema(R"({"type":"object","properties":{"c":{"type":"array","items":{"$ref":"#"}}}})"),
         {"{}", R"({"c":[{},{"c":[]}]})"}, {R"({"c":[1]})"});
  EXPECT_THAT(error_of(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}})"), HasSubstr("no text satisfies"));
  EXPECT_THAT(error_of(R"({"$ref":"#/$defs/b"})"), HasSubstr("not there"));
  EXPECT_THAT(error_of(R"({"$ref":"http://x"})"), HasSubstr("outside"));
}

TEST(SchemaGrammar, WhatIsNotSupportedIsNamed) {
  for (const char* keyword :
       {"oneOf", "allOf", "not", "if", "multipleOf", "uniqueItems", "prefixItems", "contains", "minProperties",
        "patternProperties", "propertyNames", "dependentRequired", "format", "$dynamicRef", "nonsense"}) {
    const std::string text = std::string(R"({"type":"object","properties":{"a":{")") + keyword + "\":1}}}";
    EXPECT_THAT(error_of(text.c_str()),
                ::testing::AllOf(HasSubstr(keyword), HasSubstr("schema.properties.a"), HasSubstr("not supported")));
  }
  EXPECT_THAT(error_of("5"), HasSubstr("must be an object"));
  EXPECT_THAT(error_of("false"), HasSubstr("must be an object"));
  EXPECT_THAT(error_of(R"({"type":"date"})"), HasSubstr("type"));
  EXPECT_THAT(error_of(R"({"type":5})"), HasSubstr("type"));
  EXPECT_THAT(error_of(R"({"enum":[]})"), HasSubstr("enum"));
  EXPECT_THAT(error_of(R"({"type":"string","const":5})"), HasSubstr("no value"));
  EXPECT_THAT(error_of(R"({"type":"string","maxLength":-1})"), HasSubstr("maxLength"));
  EXPECT_THAT(error_of(R"({"type":"string","maxLength":99999999})"), HasSubstr("maxLength"));
  EXPECT_THAT(error_of(R"({"type":"string","minLength":3,"maxLength":1})"), HasSubstr("less than"));
  EXPECT_THAT(error_of(R"({"type":"array","minItems":"x"})"), HasSubstr("minItems"));
  EXPECT_THAT(error_of(R"({"anyOf":[{"type":"string"}],"type":"string"})"), HasSubstr("beside"));
  EXPECT_THAT(error_of(R"({"type":"integer","minimum":5,"maximum":4})"), HasSubstr("no text satisfies"));
  EXPECT_THAT(error_of(R"({"type":"integer","minimum":"x"})"), HasSubstr("minimum"));
  EXPECT_THAT(error_of(R"({"properties":[]})"), HasSubstr("properties"));
  EXPECT_THAT(error_of(R"({"required":[5],"type":"object"})"), HasSubstr("required"));
  EXPECT_THAT(error_of(R"({"type":"object","required":["a"],"additionalProperties":false})"), HasSubstr("required"));
  EXPECT_THAT(error_of(R"s({"type":"string","pattern":"(?=a)"})s"), HasSubstr("pattern"));
  std::string big = R"({"type":"string","minLength":9999,"maxLength":9999})";
  for (int i = 0; i < 6; ++i) big = R"({"type":"array","items":)" + big + R"(,"minItems":9999})";
  EXPECT_THAT(error_of(big.c_str()), HasSubstr("no error"));  // items are shared, not copied
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_THAT(error_of(deep.c_str()), HasSubstr("nested deeper"));
}

// Every number near the bounds is in the grammar exactly if it is in the range.
TEST(SchemaGrammar, NumericBoundsAreExact) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 120; ++round) {
    const int a = pick(-130, 130);
    const int b = pick(-130, 130);
    const int low = std::min(a, b);
    const int high = std::max(a, b);
    const bool exclusive = round % 2 == 1 && high - low > 1;
    const std::string bounds = exclusive ? fmt::format(R"("exclusiveMinimum":{},"exclusiveMaximum":{})", low, high)
                                         : fmt::format(R"("minimum":{},"maximum":{})", low, high);
    const Grammar grammar = schema((R"({"type":"integer",)" + bounds + "}").c_str());
    for (int n = -140; n <= 140; ++n) {
      const bool inside = exclusive ? n > low && n < high : n >= low && n <= high;
      ASSERT_EQ(matches(grammar, std::to_string(n)), inside) << bounds << " " << n;
    }
  }
  for (int round = 0; round < 60; ++round) {
    const int a = pick(-400, 400);
    const int b = pick(-400, 400);
    const int low = std::min(a, b);
    const int high = std::max(a, b);
    const bool exclusive = round % 2 == 1 && high - low > 1;
    const std::string bounds =
        exclusive ? fmt::format(R"("exclusiveMinimum":{},"exclusiveMaximum":{})", low / 100.0, high / 100.0)
                  : fmt::format(R"("minimum":{},"maximum":{})", low / 100.0, high / 100.0);
    const Grammar grammar = schema((R"({"type":"number",)" + bounds + "}").c_str());
    for (int n = -450; n <= 450; ++n) {
      const bool inside = exclusive ? n > low && n < high : n >= low && n <= high;
      ASSERT_EQ(matches(grammar, fmt::format("{:.2f}", n / 100.0)), inside && !(n == 0 && false))
          << bounds << " " << n / 100.0;
    }
  }
  expect(schema(R"({"type":"integer","minimum":0})"), {"0", "7", "123456789012345678"},
         {"-1", "-0", "00", "1234567890123456789"});
  expect(schema(R"({"type":"integer","maximum":-5})"), {"-5", "-99"}, {"-4", "0", "5"});
  expect(schema(R"({"type":"number","minimum":0,"maximum":1})"), {"0", "0.0", "0.5", "1", "1.0", "1.000"},
         {"1.01", "-0.1", "2", ".5", "1."});
  expect(schema(R"({"type":"number","exclusiveMinimum":1.5})"), {"1.51", "1.5001", "2", "10.0"},
         {"1.5", "1.500", "1.4", "1", "-2"});
  expect(schema(R"({"type":"integer","minimum":1.5,"maximum":3.5})"), {"2", "3"}, {"1", "4"});
}

TEST(RegexGrammar, MatchesAsTheStandardLibraryDoes) {
  const std::vector<std::string> patterns = {"a|b",         "(ab)*c",    "[a-c]{2,3}", "x?y+z*", "[^a]b",
                                             "\\d{3}-\\w+", "(a|bc)+d?", "",           "a{0}b",  "(?:a(b|c){2})*",
                                             "\\.\\*",      "[\\d.]+",   "a{2,}"};
  const std::string letters = "abcxyzd1-.*";
  std::mt19937 random(3);
  for (const std::string& pattern : patterns) {
    const Grammar grammar = Grammar::regex(pattern, "r");
    const std::regex reference(pattern, std::regex::ECMAScript);
    for (int i = 0; i < 400; ++i) {
      std::string text;
      const auto length = std::uniform_int_distribution<int>(0, 6)(random);
      for (int j = 0; j < length; ++j)
        text += letters[std::uniform_int_distribution<std::size_t>(0, letters.size() - 1)(random)];
      ASSERT_EQ(matches(grammar, text), std::regex_match(text, reference)) << pattern << " " << text;
    }
  }
  expect(Grammar::regex("^[é-ü]+$", "r"), {"éü"}, {"e", "éz", "\xC3"});
  expect(Grammar::regex(".{3}", "r"), {"a🎉b"}, {"a🎉", "a\nb"});
}

TEST(RegexGrammar, WhatIsNotRegularIsRefused) {
  for (const char* pattern : {"(?=a)", "(?<n>a)", "\\bword", "(a)\\1", "a**", "a{3,2}", "a{99999}", "[z-a]", "[a", "(a",
                              "a)", "\\p{L}", "a^b", "a$b", "\\", "*a", "[[:alpha:]]", "a{", "\\u12"}) {
    EXPECT_THROW(Grammar::regex(pattern, "r"), Error) << pattern;
  }
  EXPECT_THROW(Grammar::regex("((a{1000}){1000}){1000}", "r"), Error);
  EXPECT_THROW(Grammar::regex(std::string(5000, '(') + std::string(5000, ')'), "r"), Error);
}

TEST(ChoiceGrammar, TakesTheTextsAndNoOthers) {
  expect(Grammar::choice({"yes", "yesterday", "no"}), {"yes", "yesterday", "no"}, {"", "y", "yest", "nope"});
}

const ordered_json kTools = ordered_json::parse(R"([
  {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1},"unit":{"type":"string","enum":["c","f"]}},"required":["city"],"additionalProperties":false}}},
  {"type":"function","function":{"name":"now"}}])");

TEST(ToolGrammar, EveryFormatTakesItsCallsAndTheParserReadsThem) {
  struct Case {
    ToolFormat format;
    const char* valid;
    const char* invalid;
  };
  for (const Case& entry : {
           Case{ToolFormat::hermes,
                "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
                "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>"},
           Case{ToolFormat::qwen_xml,
                "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
                "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>"},
           Case{ToolFormat::llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
                "{\"name\": \"get_rain\", \"parameters\": {}}"},
           Case{ToolFormat::mistral, "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}]",
                "[TOOL_CALLS][]"},
           Case{ToolFormat::mistral, "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}",
                "[TOOL_CALLS]get_weather[ARGS]{}"},
           Case{ToolFormat::glm,
                "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>",
                "<tool_call>get_weather\n</tool_call>"},
       }) {
    SCOPED_TRACE(name_of(entry.format));
    const Grammar grammar = Grammar::tool_calls(entry.format, kTools, "", false);
    expect(grammar, {entry.valid}, {entry.invalid, "", "Hello"});
    expect(Grammar::tool_calls(entry.format, kTools, "now", false), {}, {entry.valid});
    const auto parser = make_output_parser({.tools = entry.format}, {.tools = kTools});
    ChatAnswer answer;
    for (const ChatDelta& delta : parser->push(entry.valid)) answer.add(delta);
    for (const ChatDelta& delta : parser->finish()) answer.add(delta);
    ASSERT_EQ(answer.tool_calls.size(), 1u);
    EXPECT_EQ(ordered_json::parse(answer.tool_calls[0].arguments), ordered_json({{"city", "Rome"}}));
    EXPECT_EQ(answer.content, "");
  }
}

TEST(ToolGrammar, ParallelCallsOrderAndErrors) {
  const std::string call = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  const std::string two = call + "\n" + call;
  EXPECT_TRUE(matches(Grammar::tool_calls(ToolFormat::qwen_xml, kTools, "", true), two));
  EXPECT_FALSE(matches(Grammar::tool_calls(ToolFormat::qwen_xml, kTools, "", false), two));
  const Grammar xml = Grammar::tool_calls(ToolFormat::qwen_xml, kTools, "get_weather", false);
  const auto weather = [](const std::string& parameters) {
    return "<tool_call>\n<function=get_weather>\n" + parameters + "</function>\n</tool_call>";
  };
  EXPECT_TRUE(matches(
      xml, weather("<parameter=city>\na < b </parameter> "
                   "c\n</parameter>\n<parameter=days>\n12\n</parameter>\n<parameter=unit>\nc\n</parameter>\n")));
  EXPECT_FALSE(matches(xml, weather("<parameter=city>\nx\n</parameter>\n<parameter=days>\n0\n</parameter>\n")));
  EXPECT_FALSE(matches(xml, weather("<parameter=city>\nx\n</parameter>\n<parameter=unit>\nk\n</parameter>\n")));
  EXPECT_TRUE(matches(Grammar::tool_calls(ToolFormat::hermes, kTools, "now", false),
                      "\xFF<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n\xFF</tool_call>"));
  EXPECT_THROW(Grammar::tool_calls(ToolFormat::none, kTools, "", false), Error);
  EXPECT_THROW(Grammar::tool_calls(ToolFormat::hermes, kTools, "other", false), Error);
  EXPECT_THROW(Grammar::tool_calls(ToolFormat::hermes, nullptr, "", false), Error);
  EXPECT_THROW(
      Grammar::tool_calls(ToolFormat::hermes, ordered_json::parse(R"([{"function":{"name":"a b"}}])"), "", false),
      Error);
  EXPECT_THROW(
      Grammar::tool_calls(ToolFormat::hermes,
                          ordered_json::parse(R"([{"function":{"name":"a","parameters":{"oneOf":[]}}}])"), "", false),
      Error);
}

}  // namespace
}  // namespace pergola
