#include "text/grammar/token_constraint.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "text/grammar/matcher.h"
#include "text/grammar/token_trie.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

using nlohmann::ordered_json;

const std::string kStory = std::string(PERGOLA_SOURCE_DIR) + "/models/story";
constexpr std::int32_t kEnd = 4090;      // <|im_end|>
constexpr std::int32_t kThought = 4092;  // </think>

const Tokenizer& story() {
  static const Tokenizer tokenizer = Tokenizer::load(kStory);
  return tokenizer;
}

std::shared_ptr<CompiledGrammar> compiled(Grammar grammar) {
  static const GrammarVocabulary vocabulary(story(), 4096);
  return std::make_shared<CompiledGrammar>(std::move(grammar), vocabulary, std::vector<std::int32_t>{4088, kEnd});
}

std::set<std::int32_t> allowed(const TokenMask& mask) {
  std::set<std::int32_t> ids;
  for (std::int32_t id = 0; id < mask.size(); ++id) {
    if (mask.allows(id)) ids.insert(id);
  }
  return ids;
}

const Grammar& person() {
  static const Grammar grammar = Grammar::json_schema(ordered_json::parse(R"({"type":"object","properties":{
    "name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"enum":["a","bc","bd"]}},
    "inner":{"type":"object"}},"required":["name","age"],"additionalProperties":false})"),
                                                      "s");
  return grammar;
}

// A mask says of every token what reading its bytes says; it is found by another way (trie, shared masks of rules).
TEST(TokenConstraintMask, EqualsTryingEveryToken) {
  const auto grammar = compiled(person());
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    TokenConstraint constraint(grammar);
    Matcher matcher(person().automaton());
    Matcher::Configuration at = matcher.start(false);
    const std::vector<std::string> bytes = token_bytes(story(), 4096);
    for (int step = 0; step < 60 && !constraint.finished(); ++step) {
      const std::set<std::int32_t> mask = allowed(*constraint.mask());
      std::set<std::int32_t> wanted;
      for (std::int32_t id = 0; id < 4096; ++id) {
        Matcher::Configuration to = at;
        for (const char c : bytes[static_cast<std::size_t>(id)]) {
          if (to != Matcher::kDead) to = matcher.next(to, static_cast<unsigned char>(c));
        }
        if (!bytes[static_cast<std::size_t>(id)].empty() && to != Matcher::kDead) wanted.insert(id);
      }
      if (matcher.accepts(at)) wanted.insert({4088, kEnd});
      ASSERT_EQ(mask, wanted);
      std::vector<std::int32_t> choices(mask.begin(), mask.end());
      const std::int32_t token = choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random)];
      ASSERT_TRUE(constraint.accept(token));
      for (const char c : bytes[static_cast<std::size_t>(token)]) at = matcher.next(at, static_cast<unsigned char>(c));
      if (token == kEnd || token == 4088) break;
    }
  }
}

// Whatever is chosen among the allowed tokens, the text is in the grammar.
TEST(TokenConstraintMask, RandomChoicesGiveValidJson) {
  const auto grammar = compiled(person());
  std::mt19937 random(2);
  int complete = 0;
  for (int round = 0; round < 30; ++round) {
    TokenConstraint constraint(grammar);
    std::vector<std::int32_t> tokens;
    for (int step = 0; step < 300; ++step) {
      std::vector<std::int32_t> choices;
      for (const std::int32_t id : allowed(*constraint.mask())) choices.push_back(id);
      ASSERT_FALSE(choices.empty());
      // Quotes and brackets more often than chance would have them, so that texts end.
      std::int32_t token = choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random)];
      for (const char* piece : {"\"", "}", "]"}) {
        const auto id = story().id_of(piece);
        if (id && std::find(choices.begin(), choices.end(), *id) != choices.end() && random() % 3 == 0) token = *id;
      }
      if (std::find(choices.begin(), choices.end(), kEnd) != choices.end()) token = kEnd;
      ASSERT_TRUE(constraint.accept(token));
      if (token == kEnd) break;
      tokens.push_back(token);
    }
    if (!constraint.finished()) continue;
    ++complete;
    const auto value = ordered_json::parse(story().decode(tokens, false), nullptr, false);
    ASSERT_TRUE(value.is_object()) << story().decode(tokens, false);
    EXPECT_TRUE(value["name"].is_string());
    EXPECT_LE(value["age"].get<int>(), 150);
  }
  EXPECT_GT(complete, 15);
}

TEST(TokenConstraint, EndsWhereTheTextEnds) {
  TokenConstraint constraint(compiled(Grammar::choice({"yes"})));
  EXPECT_FALSE(constraint.accept(kEnd));
  EXPECT_FALSE(constraint.may_end());
  for (const std::int32_t id : story().encode("yes", false)) {
    EXPECT_FALSE(constraint.finished());
    ASSERT_TRUE(constraint.accept(id));
  }
  EXPECT_TRUE(constraint.finished());
  EXPECT_TRUE(constraint.may_end());
  EXPECT_EQ(allowed(*constraint.mask()), (std::set<std::int32_t>{4088, kEnd}));
  EXPECT_FALSE(constraint.accept(*story().id_of("e")));
  EXPECT_TRUE(constraint.accept(kEnd));
  EXPECT_TRUE(constraint.finished());
  EXPECT_FALSE(constraint.accept(-1));
  EXPECT_FALSE(constraint.accept(99999));
}

TEST(TokenConstraint, StartsBehindTheReasoning) {
  TokenConstraint constraint(compiled(Grammar::choice({"yes"})), "</think>");
  EXPECT_EQ(constraint.mask(), nullptr);
  for (const std::int32_t id : story().encode("I think so", false)) ASSERT_TRUE(constraint.accept(id));
  EXPECT_EQ(constraint.mask(), nullptr);
  ASSERT_TRUE(constraint.accept(kThought));
  ASSERT_NE(constraint.mask(), nullptr);
  EXPECT_FALSE(constraint.accept(*story().id_of("x")));
  for (const std::int32_t id : story().encode("\n\nyes", false)) ASSERT_TRUE(constraint.accept(id));
  EXPECT_TRUE(constraint.finished());
}

TEST(TokenConstraint, SpecialTokensAreNotTextButMayBeMarks) {
  const std::vector<std::string> bytes = {"a",   "\xFF[TOOL_CALLS]", "[TOOL_CALLS]", "{\"x\": \"", "\xFF<|im_end|>",
                                          "\"}", "x[ARGS]{}"};
  const GrammarVocabulary vocabulary(bytes);
  TokenConstraint object(
      std::make_shared<CompiledGrammar>(Grammar::json_object(), vocabulary, std::vector<std::int32_t>{4}));
  EXPECT_TRUE(object.accept(3));
  EXPECT_EQ(allowed(*object.mask()), (std::set<std::int32_t>{0, 2, 3 - 3, 5, 6}));
  const ordered_json tools = ordered_json::parse(R"([{"function":{"name":"x"}}])");
  TokenConstraint call(std::make_shared<CompiledGrammar>(Grammar::tool_calls(ToolFormat::mistral, tools, "", false),
                                                         vocabulary, std::vector<std::int32_t>{4}));
  EXPECT_EQ(allowed(*call.mask()), (std::set<std::int32_t>{1, 2}));
  EXPECT_TRUE(call.accept(1));
  EXPECT_TRUE(call.accept(6));
  EXPECT_TRUE(call.finished());
}

TEST(TokenBytes, FollowTheTokenizersAlphabet) {
  const std::vector<std::string> bytes = token_bytes(story(), 4100);
  ASSERT_EQ(bytes.size(), 4100u);
  EXPECT_EQ(bytes[4099], "");
  EXPECT_EQ(bytes[kEnd], "\xFF<|im_end|>");
  EXPECT_EQ(bytes[kThought], "</think>");
  const std::string text = "The old house, \xC3\xA9\xF0\x9F\x8E\x89 1.\n";
  std::string joined;
  for (const std::int32_t id : story().encode(text, false)) joined += bytes[static_cast<std::size_t>(id)];
  EXPECT_EQ(joined, text);
  const Tokenizer llama = Tokenizer::load(std::string(PERGOLA_SOURCE_DIR) + "/tests/data/tokenizers/llama2");
  const std::vector<std::string> pieces = token_bytes(llama, llama.size());
  joined.clear();
  for (const std::int32_t id : llama.encode("a b\xF0\x9F\x8E\x89", false))
    joined += pieces[static_cast<std::size_t>(id)];
  EXPECT_EQ(joined, " a b\xF0\x9F\x8E\x89");
}

}  // namespace
}  // namespace pergola
