#include "format/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/allocation_peak.h"
#include "format/generation_config.h"
#include "format/json.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Config config(const std::string& text) {
  return Config::parse(text, "config.json");
}

std::string refusal(
    const std::string& text, const std::function<void(const Config&)>& use = [](const Config&) {}) {
  return testing::refusal(text.size(), [&] { use(config(text)); });
}

TEST(Config, ReadsEveryKind) {
  const Config c = config(
      R"({"i": 3, "f": 2.5, "whole": 7, "b": true, "s": "x", "none": null, "li": [1, 2], "ls": ["a"], "o": {"i": 4}})");
  EXPECT_EQ(c.require_int("i", 1, 3), 3);
  EXPECT_EQ(c.get_int("absent", -1, 1, 3), -1);
  EXPECT_EQ(c.get_int("none", 9, 1, 3), 9);
  EXPECT_EQ(c.require_float("f", 0, 3), 2.5);
  EXPECT_EQ(c.require_float("whole", 0, 7), 7.0);
  EXPECT_EQ(c.get_float("absent", 1.5, 0, 1), 1.5);
  EXPECT_TRUE(c.get_bool("b", false));
  EXPECT_TRUE(c.get_bool("none", true));
  EXPECT_EQ(c.require_string("s"), "x");
  EXPECT_EQ(c.get_string("absent", "d"), "d");
  EXPECT_THAT(c.get_int_list("li", 0, 2), ElementsAre(1, 2));
  EXPECT_THAT(c.get_int_list("absent", 0, 2), IsEmpty());
  EXPECT_THAT(c.get_ints("i", 0, 5), ElementsAre(3));
  EXPECT_THAT(c.get_ints("li", 0, 5), ElementsAre(1, 2));
  EXPECT_THAT(c.get_string_list("ls"), ElementsAre("a"));
  EXPECT_EQ(c.object("o")->require_int("i", 0, 9), 4);
  EXPECT_FALSE(c.object("none"));
  EXPECT_TRUE(c.has("i"));
  EXPECT_FALSE(c.has("none"));
}

TEST(Config, TextIsNestedOrFlat) {
  EXPECT_EQ(config(R"({"text_config": {"hidden_size": 8}})").text().require_int("hidden_size", 1, 9), 8);
  EXPECT_EQ(config(R"({"hidden_size": 8})").text().require_int("hidden_size", 1, 9), 8);
  EXPECT_EQ(config(R"({"architectures": ["A", "B"]})").architecture(), "A");
}

TEST(Config, ObjectsOutliveTheirParent) {
  std::optional<Config> part;
  {
    const Config c = config(R"({"text_config": {"rope_parameters": {"rope_theta": 10000000}}})");
    part = c.text().object("rope_parameters");
  }
  EXPECT_EQ(part->require_float("rope_theta", 1, 1e9), 1e7);
}

TEST(Config, BadNumbersAreNamed) {
  const auto with = [](const std::string& value) {
    return refusal(R"({"text_config": {"hidden_size": )" + value + "}}",
                   [](const Config& c) { c.text().require_int("hidden_size", 1, 1 << 20); });
  };
  EXPECT_EQ(with("0"), "config.json, field text_config.hidden_size: 0 is not in [1, 1048576]");
  EXPECT_THAT(with("-5"), HasSubstr("-5 is not in"));
  EXPECT_THAT(with("1048577"), HasSubstr("is not in"));
  EXPECT_THAT(with("9223372036854775808"), HasSubstr("9223372036854775808 is not in"));
  EXPECT_THAT(with("18446744073709551615"), HasSubstr("is not in"));
  EXPECT_THAT(with("-9223372036854775808"), HasSubstr("is not in"));
  EXPECT_THAT(with("1e30"), HasSubstr("expected a whole number, found 1e+30"));
  EXPECT_THAT(with("99999999999999999999999"), HasSubstr("expected a whole number"));
  EXPECT_THAT(with("2048.0"), HasSubstr("expected a whole number, found 2048.0"));
  EXPECT_THAT(with("\"2048\""), HasSubstr("found the string \"2048\""));
  EXPECT_THAT(with("[1]"), HasSubstr("found a list of 1"));
  EXPECT_THAT(with("{}"), HasSubstr("found an object"));
  EXPECT_THAT(with("true"), HasSubstr("found true"));
  EXPECT_THAT(with("null"), HasSubstr("the value is missing"));
}

TEST(Config, BadValuesOfOtherKindsAreNamed) {
  EXPECT_THAT(refusal(R"({"eps": -1})", [](const Config& c) { c.require_float("eps", 0, 1); }),
              HasSubstr("field eps: -1 is not in [0, 1]"));
  EXPECT_THAT(refusal(R"({"eps": "x"})", [](const Config& c) { c.require_float("eps", 0, 1); }),
              HasSubstr("expected a number"));
  EXPECT_THAT(refusal(R"({"eps": 1e999})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"eps": NaN})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"b": 1})", [](const Config& c) { c.get_bool("b", true); }),
              HasSubstr("expected true or false, found 1"));
  EXPECT_THAT(refusal(R"({"s": 1})", [](const Config& c) { c.require_string("s"); }),
              HasSubstr("expected a string, found 1"));
  EXPECT_THAT(refusal(R"({"l": 1})", [](const Config& c) { c.get_int_list("l", 0, 1); }),
              HasSubstr("expected a list, found 1"));
  EXPECT_THAT(refusal(R"({"l": [0, 7]})", [](const Config& c) { c.get_int_list("l", 0, 1); }),
              HasSubstr("field l[1]: 7 is not in [0, 1]"));
  EXPECT_THAT(refusal(R"({"l": ["a", 7]})", [](const Config& c) { c.get_string_list("l"); }),
              HasSubstr("field l[1]: expected a string"));
  EXPECT_THAT(refusal(R"({"o": 1})", [](const Config& c) { c.object("o"); }), HasSubstr("expected an object, found 1"));
  EXPECT_THAT(refusal(R"({"text_config": []})", [](const Config& c) { c.text(); }),
              HasSubstr("field text_config: expected an object"));
  EXPECT_THAT(refusal(R"({"architectures": []})", [](const Config& c) { c.architecture(); }),
              HasSubstr("field architectures"));
  EXPECT_THAT(refusal(R"({"architectures": "A"})", [](const Config& c) { c.architecture(); }),
              HasSubstr("expected a list"));
  EXPECT_THAT(refusal("{}", [](const Config& c) { c.check_divides("heads", 6, 4, "num_key_value_heads"); }),
              HasSubstr("field heads: 6 is not a multiple of num_key_value_heads (4)"));
  EXPECT_THAT(refusal("{}", [](const Config& c) { c.check_divides("heads", 6, 0, "x"); }), HasSubstr("not a multiple"));
  EXPECT_NO_THROW(config("{}").check_divides("heads", 6, 3, "x"));
}

TEST(Config, BadDocumentsAreRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"a\":"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("expected a JSON object, found a list of 1"));
  EXPECT_THAT(refusal("{\"a\": \"\xC3\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal("{\"a\": 1} x"), HasSubstr("config.json, byte 10: not valid JSON"));
}

TEST(Config, DeepDocumentsAreRefused) {
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string text = R"({"a":)";
    for (int i = 0; i < 1000000; ++i) text += open;
    EXPECT_THAT(refusal(text), HasSubstr("nested deeper than 64 levels"));
  }
  const auto nested = [](int levels) {
    return R"({"a":)" + std::string(levels, '[') + "\"]\\\"[\"" + std::string(levels, ']') + "}";
  };
  EXPECT_NO_THROW(config(nested(63)));
  EXPECT_THAT(refusal(nested(64)), HasSubstr("deeper"));
}

TEST(Config, HostileDocumentsStayWithinTheirMemory) {
  for (const std::string element : {"{},", "1,", "{\"\":0},"}) {
    std::string text = R"({"a":[)";
    while (text.size() < 4000000) text += element;
    text += "0]}";
    EXPECT_LE(testing::allocation_peak([&] { config(text); }), testing::allowed_peak(text.size())) << element;
  }
  std::string keys = "{";
  for (int i = 0; i < 300000; ++i) keys += fmt::format("\"{:x}\":0,", i);
  keys += "\"a\":0}";
  EXPECT_LE(testing::allocation_peak([&] { config(keys); }), testing::allowed_peak(keys.size()));
}

TEST(Config, FilesAreReadAndNamed) {
  testing::TempFolder folder;
  testing::write_text(folder / "c.json", R"({"a": 1})");
  EXPECT_EQ(Config::load(folder / "c.json").require_int("a", 0, 1), 1);
  testing::write_text(folder / "c.json", "");
  EXPECT_THAT(testing::refusal(0, [&] { Config::load(folder / "c.json"); }), HasSubstr("c.json: the file is empty"));
  EXPECT_THAT(testing::refusal(0, [&] { Config::load(folder / "none.json"); }), HasSubstr("none.json: cannot open"));
}

TEST(GenerationConfig, DefaultsAndEndsOfText) {
  testing::TempFolder folder;
  const Config model = config(R"({"text_config": {"eos_token_id": 5, "bos_token_id": null, "pad_token_id": 5}})");
  GenerationConfig g = load_generation_config(folder.path(), model);
  EXPECT_THAT(g.eos_token_ids, ElementsAre(5));
  EXPECT_FALSE(g.temperature);
  EXPECT_FALSE(g.bos_token_id);
  EXPECT_EQ(g.pad_token_id, 5);
  testing::write_text(
      folder / "generation_config.json",
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repetition_penalty": 1.05,
                          "eos_token_id": [9, 5], "bos_token_id": 1, "transformers_version": "5"})");
  g = load_generation_config(folder.path(), model);
  EXPECT_EQ(g.do_sample, true);
  EXPECT_EQ(g.temperature, 0.6);
  EXPECT_EQ(g.top_k, 20);
  EXPECT_EQ(g.top_p, 0.95);
  EXPECT_EQ(g.min_p, 0.0);
  EXPECT_EQ(g.repetition_penalty, 1.05);
  EXPECT_FALSE(g.presence_penalty);
  EXPECT_THAT(g.eos_token_ids, ElementsAre(5, 9));
  EXPECT_EQ(g.bos_token_id, 1);
  EXPECT_THAT(load_generation_config(folder.path(), config("{}")).eos_token_ids, ElementsAre(5, 9));
  EXPECT_THAT(load_generation_config(folder.path(), config(R"({"eos_token_id": 3})")).eos_token_ids,
              ElementsAre(3, 5, 9));
}

TEST(GenerationConfig, BadValuesAreNamed) {
  const auto with = [](const std::string& text) {
    testing::TempFolder folder;
    testing::write_text(folder / "generation_config.json", text);
    return testing::refusal(text.size(), [&] { load_generation_config(folder.path(), config("{}")); });
  };
  EXPECT_THAT(with(R"({"temperature": -1})"), HasSubstr("generation_config.json, field temperature: -1 is not in"));
  EXPECT_THAT(with(R"({"top_p": 1.5})"), HasSubstr("field top_p"));
  EXPECT_THAT(with(R"({"top_k": -1})"), HasSubstr("field top_k"));
  EXPECT_THAT(with(R"({"top_k": 2.5})"), HasSubstr("expected a whole number"));
  EXPECT_THAT(with(R"({"repetition_penalty": 0})"), HasSubstr("field repetition_penalty"));
  EXPECT_THAT(with(R"({"do_sample": "yes"})"), HasSubstr("field do_sample"));
  EXPECT_THAT(with(R"({"eos_token_id": [1, -2]})"), HasSubstr("field eos_token_id[1]"));
  EXPECT_THAT(with(R"({"eos_token_id": 4294967296})"), HasSubstr("field eos_token_id"));
  EXPECT_THAT(with("[]"), HasSubstr("expected a JSON object"));
}

}  // namespace
}  // namespace pergola
