// What constrained decoding costs a step: the mask of a state that is new (cold) or known (warm), its application to
// the logits, and taking a token; with the bundled model's vocabulary and a synthetic one of 248,320 tokens.
#include <benchmark/benchmark.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/token_constraint.h"
#include "text/grammar/token_trie.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

const std::string kStory = std::string(PERGOLA_SOURCE_DIR) + "/models/story";
constexpr std::size_t kLargeVocabulary = 248'320;

// Words that share beginnings as those of a trained vocabulary do: each token extends an older one by a byte or two.
std::vector<std::string> synthetic_tokens() {
  std::mt19937 random(1);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 255; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"\":", "\": ", "\",", "\", \"", "{\"", "\"}", "},", "}, {\"", "[\"", "\"]"})
    tokens.emplace_back(text);
  const std::string letters = " etaoinshrdlucmfwypvbgkjqxz.,-'0123456789ETAOINS\"\\\n{}[]:";
  std::set<std::string> known(tokens.begin(), tokens.end());
  while (tokens.size() < kLargeVocabulary) {
    std::string token = tokens[std::uniform_int_distribution<std::size_t>(0, tokens.size() - 1)(random)];
    // Mostly from the front of the alphabet, as in text.
    const double place = std::uniform_real_distribution<double>(0, 1)(random);
    token += letters[static_cast<std::size_t>(place * place * static_cast<double>(letters.size()))];
    if (token.size() > 24 || static_cast<unsigned char>(token[0]) >= 0x80 || !known.insert(token).second) continue;
    tokens.push_back(token);
  }
  return tokens;
}

std::vector<std::string> vocabulary_bytes(bool large) {
  return large ? synthetic_tokens() : token_bytes(Tokenizer::load(kStory), 4096);
}

const GrammarVocabulary& vocabulary(bool large) {
  static std::map<bool, GrammarVocabulary> made;
  return made.try_emplace(large, vocabulary_bytes(large)).first->second;
}

Grammar person() {
  return Grammar::json_schema(nlohmann::ordered_json::parse(R"({"type":"object","properties":{
    "name":{"type":"string"},"city":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
    "tags":{"type":"array","items":{"type":"string"}},"notes":{"type":"object"}},
    "required":["name","city","age","tags","notes"],"additionalProperties":false})"),
                              "schema");
}

const std::string kText =
    R"({"name": "Ada L", "city": "London", "age": 36, "tags": ["math", "poetry"], "notes": {"a": [1, {"b": "c"}]}})";

// One token a byte, so that every state of the text is met.
void walk(TokenConstraint& constraint, const GrammarVocabulary& words, std::vector<float>* logits) {
  static std::map<const TokenBytesTrie*, std::map<char, std::int32_t>> bytes;
  auto& ids = bytes[&words.trie()];
  if (ids.empty()) {
    for (std::int32_t id = 0; id < words.trie().vocab_size(); ++id) {
      if (words.trie().bytes_of(id).size() == 1) ids[words.trie().bytes_of(id)[0]] = id;
    }
  }
  for (const char c : kText) {
    const TokenMask* mask = constraint.mask();
    benchmark::DoNotOptimize(mask);
    if (logits != nullptr) mask->apply(*logits);
    if (!constraint.accept(ids.at(c))) std::abort();
  }
}

void cold(benchmark::State& state) {
  const GrammarVocabulary& words = vocabulary(state.range(0) != 0);
  for (auto _ : state) {
    TokenConstraint constraint(std::make_shared<CompiledGrammar>(person(), words, std::vector<std::int32_t>{0}));
    walk(constraint, words, nullptr);
  }
  state.counters["token"] = benchmark::Counter(static_cast<double>(state.iterations() * kText.size()),
                                               benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void warm(benchmark::State& state) {
  const GrammarVocabulary& words = vocabulary(state.range(0) != 0);
  const auto grammar = std::make_shared<CompiledGrammar>(person(), words, std::vector<std::int32_t>{0});
  std::vector<float> logits(static_cast<std::size_t>(words.trie().vocab_size()), 1.0f);
  TokenConstraint first(grammar);
  walk(first, words, nullptr);
  for (auto _ : state) {
    TokenConstraint constraint(grammar);
    walk(constraint, words, state.range(1) != 0 ? &logits : nullptr);
  }
  state.counters["token"] = benchmark::Counter(static_cast<double>(state.iterations() * kText.size()),
                                               benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// The first mask inside a string: nearly the whole vocabulary is looked at. Once a grammar.
void first_string(benchmark::State& state) {
  const GrammarVocabulary& words = vocabulary(state.range(0) != 0);
  for (auto _ : state) {
    state.PauseTiming();
    auto grammar = std::make_shared<CompiledGrammar>(Grammar::json_schema({{"type", "string"}}, "s"), words,
                                                     std::vector<std::int32_t>{0});
    TokenConstraint constraint(grammar);
    if (!constraint.accept(static_cast<std::int32_t>('"'))) {
      for (std::int32_t id = 0; id < words.trie().vocab_size(); ++id) {
        if (words.trie().bytes_of(id) == "\"" && constraint.accept(id)) break;
      }
    }
    state.ResumeTiming();
    benchmark::DoNotOptimize(constraint.mask());
  }
}

BENCHMARK(cold)->ArgName("large")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);
BENCHMARK(warm)
    ->ArgNames({"large", "apply"})
    ->Args({0, 0})
    ->Args({0, 1})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(first_string)->ArgName("large")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond)->Iterations(20);

}  // namespace
}  // namespace pergola

BENCHMARK_MAIN();
