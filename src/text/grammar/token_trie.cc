#include "text/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

#include "text/byte_level.h"
#include "text/grammar/automaton.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace pergola {
namespace {

// A piece in GPT-2's byte alphabet as bytes; false when it has a character outside of it.
bool byte_level_bytes(std::string_view piece, std::string& out) {
  for (std::size_t at = 0; at < piece.size();) {
    const int byte = byte_level_byte(utf8_next(piece, at));
    if (byte < 0) return false;
    out += static_cast<char>(byte);
  }
  return true;
}

// "<0xNN>", a byte of SentencePiece's fallback; -1 for other pieces.
int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  return digit(piece[3]) < 0 || digit(piece[4]) < 0 ? -1 : digit(piece[3]) * 16 + digit(piece[4]);
}

std::string sentencepiece_bytes(std::string_view piece) {
  constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
  if (const int byte = fallback_byte(piece); byte >= 0) return std::string(1, static_cast<char>(byte));
  std::string out;
  for (std::size_t at = 0; at < piece.size();) {
    if (piece.substr(at).starts_with(kSpace)) {
      out += ' ';
      at += kSpace.size();
    } else {
      out += piece[at++];
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> token_bytes(const Tokenizer& tokenizer, std::int64_t vocab_size) {
  std::vector<std::string> bytes(static_cast<std::size_t>(vocab_size));
  std::vector<bool> added(bytes.size(), false);
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.id >= vocab_size) continue;
    const auto id = static_cast<std::size_t>(token.id);
    added[id] = true;
    bytes[id] = (token.special ? std::string(1, kSpecialMark) : std::string()) + token.content;
  }
  // The alphabet of bytes has the space as U+0120; SentencePiece's pieces have U+2581.
  const bool byte_level = !tokenizer.id_of("\xE2\x96\x81") && tokenizer.id_of("\xC4\xA0");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto piece = tokenizer.piece_of(static_cast<std::int32_t>(i));
    if (added[i] || !piece) continue;
    if (!byte_level) {
      bytes[i] = sentencepiece_bytes(*piece);
    } else if (!byte_level_bytes(*piece, bytes[i])) {
      bytes[i] = *piece;
    }
  }
  return bytes;
}

TokenBytesTrie::TokenBytesTrie(std::span<const std::string> bytes) : bytes_(bytes.begin(), bytes.end()) {
  std::vector<std::int32_t> order(bytes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int32_t id) { return bytes_of(id).empty(); });
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return bytes_of(a) < bytes_of(b); });
  nodes_.push_back({0, 0, 0});
  std::vector<std::uint32_t> path = {0};  // nodes of the token before, from the root
  std::string_view before;
  for (const std::int32_t id : order) {
    const std::string_view text = bytes_of(id);
    const std::size_t shared = static_cast<std::size_t>(
        std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first - before.begin());
    for (; path.size() > shared + 1; path.pop_back())
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
    for (std::size_t i = shared; i < text.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()), static_cast<std::uint8_t>(text[i])});
    }
    tokens_.push_back(id);
    before = text;
  }
  for (const std::uint32_t node : path) nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()), 0});
}

}  // namespace pergola
