// What a broken or hostile tokenizer.json leads to: one sentence that names file and field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "fixtures.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace pergola {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

Json good() {
  return Json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<end>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+|\\S+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<end>": {"id": "<end>", "ids": [5], "tokens": ["<end>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3, "Ġ": 4},
      "merges": [["a", "b"], "ab ab"]}})");
}

Tokenizer load(const Json& json) {
  return Tokenizer::from_json(json.dump(), "tokenizer.json");
}

// The tokenizer of `good` with another value at `place` must be refused in a sentence that names `field` and says
// `words`.
void expect_refused(const std::string& place, const Json& value, const std::string& field, const std::string& words) {
  Json json = good();
  json[Json::json_pointer(place)] = value;
  try {
    load(json);
    ADD_FAILURE() << place << " = " << value << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.where().file, "tokenizer.json");
    EXPECT_EQ(error.where().field, field) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(BadTokenizer, TheGoodOneWorks) {
  const Tokenizer tokenizer = load(good());
  EXPECT_EQ(tokenizer.encode("ab abab<end>", true), (std::vector<std::int32_t>{5, 2, 4, 3, 5}));
  EXPECT_EQ(tokenizer.size(), 6);
}

TEST(BadTokenizer, NotJson) {
  for (const std::string text : {"", "{", "[1, 2", "nonsense", "{\"model\": \"\xFF\"}", "{} {}"}) {
    EXPECT_THROW(Tokenizer::from_json(text, "tokenizer.json"), Error) << text;
  }
  EXPECT_THROW(Tokenizer::from_json(std::string(1'000'000, '['), "tokenizer.json"), Error);
}

TEST(BadTokenizer, NotAnObject) {
  for (const std::string text : {"[]", "1", "null", "\"text\"", "{}", "{\"model\": null}", "{\"model\": []}"}) {
    EXPECT_THROW(Tokenizer::from_json(text, "tokenizer.json"), Error) << text;
  }
}

TEST(BadTokenizer, Vocabulary) {
  expect_refused("/model/vocab", Json::array({"a", "b"}), "model.vocab", "must be an object");
  expect_refused("/model/vocab", nullptr, "model.vocab", "must be an object");
  expect_refused("/model/vocab", Json::object(), "model.vocab", "no pieces");
  expect_refused("/model/vocab/ab", -1, "model.vocab.ab", "-1");
  expect_refused("/model/vocab/ab", 1.5, "model.vocab.ab", "1.5");
  expect_refused("/model/vocab/ab", "2", "model.vocab.ab", "integer");
  expect_refused("/model/vocab/ab", max_token_ids, "model.vocab.ab", std::to_string(max_token_ids));
  expect_refused("/model/vocab/ab", std::uint64_t{1} << 63, "model.vocab.ab", "9223372036854775808");
  expect_refused("/model/vocab/ab", 1, "model.vocab", "id 1");
}

TEST(BadTokenizer, Merges) {
  expect_refused("/model/merges", "ab", "model.merges", "must be an array");
  expect_refused("/model/merges/0", "a x", "model.merges[0]", "\"x\" is not in the vocabulary");
  expect_refused("/model/merges/0", Json::array({"x", "a"}), "model.merges[0]", "\"x\" is not in the vocabulary");
  expect_refused("/model/merges/0", "b a", "model.merges[0]", "\"ba\" is not in the vocabulary");
  expect_refused("/model/merges/0", "ab", "model.merges[0]", "one space");
  expect_refused("/model/merges/0", "a b a", "model.merges[0]", "one space");
  expect_refused("/model/merges/0", Json::array({"a"}), "model.merges[0]", "2 strings");
  expect_refused("/model/merges/0", Json::array({"a", 1}), "model.merges[0]", "2 strings");
  expect_refused("/model/merges/0", 7, "model.merges[0]", "string");
}

TEST(BadTokenizer, MergesThatWouldCycle) {
  Json json = good();
  json["model"]["vocab"][""] = 6;
  json["model"]["merges"].push_back(Json::array({"", "a"}));
  EXPECT_THROW(load(json), Error);
  json["model"]["merges"].back() = " a";
  EXPECT_THROW(load(json), Error);
}

TEST(BadTokenizer, ModelOptions) {
  expect_refused("/model/type", "Unigram", "model.type", "\"Unigram\" is not supported");
  expect_refused("/model/type", "WordPiece", "model.type", "\"WordPiece\" is not supported");
  expect_refused("/model/dropout", 0.1, "model.dropout", "not supported");
  expect_refused("/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix", "not supported");
  expect_refused("/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix", "not supported");
  expect_refused("/model/unk_token", "<unk>", "model.unk_token", "not in the vocabulary");
  expect_refused("/model/byte_fallback", "yes", "model.byte_fallback", "true or false");
}

TEST(BadTokenizer, AddedTokens) {
  expect_refused("/added_tokens", Json::object(), "added_tokens", "must be an array");
  expect_refused("/added_tokens/0/id", -1, "added_tokens[0].id", "-1");
  expect_refused("/added_tokens/0/id", max_token_ids, "added_tokens[0].id", "must be from");
  expect_refused("/added_tokens/0/id", 3, "added_tokens[0]", "which is \"abab\"");
  expect_refused("/added_tokens/0/content", "ab", "added_tokens[0]", "the vocabulary gives it 2");
  expect_refused("/added_tokens/0/content", "", "added_tokens[0].content", "empty");
  expect_refused("/added_tokens/0/content", 5, "added_tokens[0].content", "string");
  expect_refused("/added_tokens/1", {{"id", 5}, {"content", "<other>"}}, "added_tokens[1]", "twice");
  expect_refused("/added_tokens/1", {{"id", 6}, {"content", "<end>"}}, "added_tokens[1]", "twice");
}

TEST(BadTokenizer, UnknownTypesAreNamed) {
  expect_refused("/normalizer/normalizers/0/type", "Nmt", "normalizer.normalizers[0].type", "\"Nmt\" is not supported");
  expect_refused("/normalizer/normalizers/0", {{"type", "Precompiled"}}, "normalizer.normalizers[0].type",
                 "Precompiled");
  expect_refused("/pre_tokenizer/pretokenizers/1/type", "BertPreTokenizer", "pre_tokenizer.pretokenizers[1].type",
                 "\"BertPreTokenizer\" is not supported");
  expect_refused("/post_processor/type", "BertProcessing", "post_processor.type",
                 "\"BertProcessing\" is not supported");
  expect_refused("/decoder/type", "WordPiece", "decoder.type", "\"WordPiece\" is not supported");
  expect_refused("/decoder", Json::object(), "decoder.type", "missing");
  expect_refused("/pre_tokenizer/pretokenizers/0/behavior", "Sideways", "pre_tokenizer.pretokenizers[0].behavior",
                 "Sideways");
  expect_refused("/pre_tokenizer/pretokenizers/0/pattern", "x", "pre_tokenizer.pretokenizers[0].pattern", "object");
  expect_refused("/pre_tokenizer/pretokenizers/0/pattern", Json::object(), "pre_tokenizer.pretokenizers[0].pattern",
                 "Regex");
}

TEST(BadTokenizer, Templates) {
  expect_refused("/post_processor/single", Json::array(), "post_processor.single", "contains it 0 times");
  expect_refused("/post_processor/special_tokens", Json::object(), "post_processor.special_tokens.<end>", "missing");
  expect_refused("/post_processor/special_tokens/<end>/ids/0", -5, "post_processor.special_tokens.<end>.ids[0]", "-5");
}

TEST(BadTokenizer, DecodersInAnOrderThatHasNoMeaning) {
  const Json fuse = {{"type", "Fuse"}};
  expect_refused("/decoder", {{"type", "Sequence"}, {"decoders", {fuse, {{"type", "ByteFallback"}}}}},
                 "decoder.decoders[1]", "behind Fuse");
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "c"}};
  expect_refused("/decoder", {{"type", "Sequence"}, {"decoders", {fuse, replace}}}, "decoder.decoders[1]",
                 "behind Fuse");
}

TEST(BadTokenizer, RegularExpressions) {
  const std::string field = "pre_tokenizer.pretokenizers[0].pattern.Regex";
  const std::string place = "/pre_tokenizer/pretokenizers/0/pattern/Regex";
  for (const char* pattern : {"(",           ")",
                              "(a",          "[a",
                              "[",           "[]",
                              "a{3,1}",      "\\",
                              "[\\",         "\\p",
                              "\\p{",        "\\p{Nonsense}",
                              "*",           "(?<=a+)b",
                              "\\x{110000}", "\\x{",
                              "[z-a]",       "(?<n",
                              "(?~a)",       "(?P<n>a)(?P<n>b)",
                              "\\q",         "[[:nonsense:]]",
                              "[a",          "[[a]",
                              "(?#",         "\\k<x>"}) {
    expect_refused(place, pattern, field, "regular expression");
  }
  expect_refused(place, std::string(20'000, 'a'), field, "20000 bytes");
  expect_refused(place, std::string(1000, '('), field, "nested too deeply");
  expect_refused(place, std::string(1000, '['), field, "nested too deeply");
}

TEST(BadTokenizer, RegularExpressionThatExplodes) {
  Json json = good();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+$|(a|a)*c";
  const Tokenizer tokenizer = load(json);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(tokenizer.encode(std::string(5000, 'a') + "b", false), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(BadTokenizer, DeepSequences) {
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 200; ++i) nested = {{"type", "Sequence"}, {"normalizers", Json::array({nested})}};
  Json json = good();
  json["normalizer"] = nested;
  EXPECT_THROW(load(json), Error);
}

class BadTokenizerFolder : public testing::Test {
 protected:
  BadTokenizerFolder() {
    folder_ = std::filesystem::path(testing::TempDir()) / "pergola_bad_tokenizer";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~BadTokenizerFolder() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  std::filesystem::path folder_;
};

TEST_F(BadTokenizerFolder, NoFile) {
  EXPECT_THROW(Tokenizer::load(folder_), Error);
}

TEST_F(BadTokenizerFolder, EosThatIsNoToken) {
  write("tokenizer.json", good().dump());
  write("tokenizer_config.json", R"({"eos_token": "<nope>"})");
  try {
    Tokenizer::load(folder_);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.where().field, "eos_token");
    EXPECT_THAT(error.where().file, HasSubstr("tokenizer_config.json"));
  }
}

TEST_F(BadTokenizerFolder, EosInBothSpellings) {
  write("tokenizer.json", good().dump());
  EXPECT_EQ(Tokenizer::load(folder_).eos_id(), std::nullopt);
  write("tokenizer_config.json", R"({"eos_token": "<end>", "bos_token": null})");
  EXPECT_EQ(Tokenizer::load(folder_).eos_id(), 5);
  EXPECT_EQ(Tokenizer::load(folder_).bos_id(), std::nullopt);
  write("tokenizer_config.json", R"({"eos_token": {"content": "<end>", "lstrip": false}, "bos_token": "a"})");
  EXPECT_EQ(Tokenizer::load(folder_).eos_id(), 5);
  EXPECT_EQ(Tokenizer::load(folder_).bos_id(), 0);
}

}  // namespace
}  // namespace pergola
