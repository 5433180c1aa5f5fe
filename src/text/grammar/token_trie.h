#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pergola {

class Tokenizer;

/// The bytes that every id of a vocabulary stands for in text, by id; empty for ids without a token. Special tokens get
/// kSpecialMark before their text.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer, std::int64_t vocab_size);

/// All tokens of a vocabulary by their bytes, as one array in depth-first order: a subtree is a range, and leaving it
/// out is one jump.
class TokenBytesTrie {
 public:
  /// `bytes` by id.
  explicit TokenBytesTrie(std::span<const std::string> bytes);

  struct Node {
    std::uint32_t end;    ///< index behind the subtree
    std::uint32_t first;  ///< of the node's tokens in tokens(); the next node's `first` is behind the last
    std::uint8_t byte;    ///< from the parent
  };

  std::int64_t vocab_size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// Node 0 is the root. One more node ends the list.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const std::int32_t> tokens_at(std::uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first, nodes_[node + 1].first - nodes_[node].first);
  }
  std::string_view bytes_of(std::int32_t token) const { return bytes_[static_cast<std::size_t>(token)]; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace pergola
