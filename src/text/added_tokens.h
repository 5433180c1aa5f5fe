#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/json_node.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace pergola {

/// A token that is found in the text before anything else is done with it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  std::string spelling;      ///< how it stands in the text: `content`, normalized if `normalized`
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the white space on its left
  bool rstrip = false;       ///< takes the white space on its right
  bool normalized = false;   ///< looked for in normalized text, in its own normalized spelling
  bool special = false;      ///< left out of decoded text on request
};

/// A set of byte strings, searched for the longest that starts at a place.
class TokenTrie {
 public:
  struct Match {
    std::size_t token;
    std::size_t length;
  };
  void insert(std::string_view text, std::size_t token);
  std::optional<Match> longest_at(std::string_view text, std::size_t at) const;

  /// The first place from `at` on where a string of the set might start; text.size() when there is none.
  std::size_t candidate(std::string_view text, std::size_t at) const;

 private:
  static std::uint64_t edge(std::uint32_t node, char c) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
  }

  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::vector<std::optional<std::size_t>> tokens_ = {std::nullopt};  // by node; 0 is the root
  std::vector<bool> first_bytes_ = std::vector<bool>(256, false);
};

/// The "added_tokens" of tokenizer.json.
class AddedTokens {
 public:
  /// Reads the list; `normalizer` may be null. Throws Error when an id is out of range, given twice, or in conflict
  /// with the vocabulary.
  AddedTokens(const JsonNode& node, const Vocabulary& vocabulary, const Normalizer* normalizer);
  AddedTokens() = default;

  /// A part of a text: an added token, or text between (token is -1).
  struct Part {
    std::int32_t token;
    std::size_t begin;
    std::size_t end;
  };

  /// Cuts raw text at the tokens that are not normalized.
  void split_raw(std::string_view text, std::vector<Part>& parts) const { split(raw_, text, parts); }
  /// Cuts normalized text at the tokens that are normalized.
  void split_normalized(std::string_view text, std::vector<Part>& parts) const { split(normalized_, text, parts); }

  /// All of them, in the order of the file.
  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::int32_t id) const;
  const AddedToken* find(std::string_view content) const;

 private:
  void split(const TokenTrie& trie, std::string_view text, std::vector<Part>& parts) const;
  void add(AddedToken token, const JsonNode& node, const Vocabulary& vocabulary);

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  TokenTrie raw_;
  TokenTrie normalized_;
};

}  // namespace pergola
