// Both ways of merging (the scan of short words, the heap of long ones) against the definition.
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace pergola {
namespace {

struct RandomModel {
  nlohmann::json json;
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;

  RandomModel(std::mt19937& random, int merges) {
    std::vector<std::string> pieces;
    nlohmann::json vocab;
    const auto add = [&](const std::string& piece) {
      if (vocab.contains(piece)) return;
      vocab[piece] = pieces.size();
      pieces.push_back(piece);
    };
    for (const char* letter : {"a", "b", "c", "é"}) add(letter);
    json = {{"type", "BPE"}, {"merges", nlohmann::json::array()}};
    while (static_cast<int>(ranks.size()) < merges) {
      const std::string left = pieces[random() % pieces.size()];
      const std::string right = pieces[random() % pieces.size()];
      if (left.size() + right.size() > 12 || ranks.contains({left, right})) continue;
      ranks.emplace(std::pair(left, right), ranks.size());
      json["merges"].push_back({left, right});
      add(left + right);
    }
    json["vocab"] = vocab;
  }

  std::vector<std::int32_t> encode(std::vector<std::string> pieces) const {
    while (true) {
      std::size_t best = pieces.size();
      std::size_t best_rank = ranks.size();
      for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
        const auto found = ranks.find({pieces[i], pieces[i + 1]});
        if (found != ranks.end() && found->second < best_rank) {
          best = i;
          best_rank = found->second;
        }
      }
      if (best == pieces.size()) break;
      pieces[best] += pieces[best + 1];
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<std::int32_t> ids;
    for (const std::string& piece : pieces) ids.push_back(json["vocab"][piece]);
    return ids;
  }
};

TEST(Bpe, MergesAsDefined) {
  std::mt19937 random(1);
  for (const int merges : {0, 1, 5, 30, 150}) {
    const RandomModel model(random, merges);
    const Bpe bpe(JsonNode(model.json, "tokenizer.json", "model"));
    Bpe::Scratch scratch;
    for (int round = 0; round < 300; ++round) {
      const std::size_t length = round < 200 ? random() % 60 : random() % 300;
      std::vector<std::string> letters;
      std::string word;
      for (std::size_t i = 0; i < length; ++i) {
        const char* all[] = {"a", "b", "c", "é"};
        letters.emplace_back(all[random() % 4]);
        word += letters.back();
      }
      std::vector<std::int32_t> ids;
      bpe.encode(word, ids, scratch);
      EXPECT_EQ(ids, model.encode(letters)) << word;
    }
  }
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
  nlohmann::json json =
      nlohmann::json::parse(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "aab": 3}, "merges": [["a", "b"]]})");
  for (const bool ignore : {false, true}) {
    json["ignore_merges"] = ignore;
    const Bpe bpe(JsonNode(json, "tokenizer.json", "model"));
    Bpe::Scratch scratch;
    std::vector<std::int32_t> ids;
    bpe.encode("aab", ids, scratch);
    EXPECT_EQ(ids, ignore ? std::vector<std::int32_t>{3} : (std::vector<std::int32_t>{0, 2}));
  }
}

TEST(Bpe, ALaterMergeOfTheSamePairCounts) {
  const nlohmann::json json = nlohmann::json::parse(
      R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}, "merges": ["a b", "b c", "a b"]})");
  const Bpe bpe(JsonNode(json, "tokenizer.json", "model"));
  Bpe::Scratch scratch;
  std::vector<std::int32_t> ids;
  bpe.encode("abc", ids, scratch);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 4}));
}

}  // namespace
}  // namespace pergola
