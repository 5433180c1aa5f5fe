#include "text/vocabulary.h"

#include <algorithm>

#include "text/utf8.h"

namespace pergola {
namespace {

std::int64_t read_id(const nlohmann::json& value, const std::string& piece, const Where& where) {
  // The place of a value is only spelled out where it is needed: there are a quarter of a million of them.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() < static_cast<std::uint64_t>(max_token_ids)) {
    return value.get<std::int64_t>();
  }
  return JsonNode(value, where.file, where.field + "." + piece).integer(0, max_token_ids - 1);
}

}  // namespace

Vocabulary::Vocabulary(const JsonNode& node) : characters_(basic_plane, -1) {
  if (!node.is_object()) fail(node.where(), "must be an object of piece: id, is {}", node.json().type_name());
  std::size_t bytes = 0;
  std::int64_t largest = -1;
  for (const auto& [piece, value] : node.json().items()) {
    bytes += piece.size();
    largest = std::max(largest, read_id(value, piece, node.where()));
  }
  if (largest < 0) fail(node.where(), "has no pieces");

  storage_.reserve(bytes + 1);  // never empty, so that the empty piece has an address too
  pieces_.resize(static_cast<std::size_t>(largest) + 1);
  ids_.reserve(node.json().size());
  for (const auto& [piece, value] : node.json().items()) {
    const auto id = value.get<std::int32_t>();
    const std::string_view stored(storage_.data() + storage_.size(), piece.size());
    storage_.insert(storage_.end(), piece.begin(), piece.end());
    std::string_view& place = pieces_[static_cast<std::size_t>(id)];
    if (place.data() != nullptr)
      fail(node.where(), "gives id {} to both {} and {}", id, in_quotes(place), in_quotes(piece));
    place = stored;
    ids_.emplace(stored, id);
    if (piece.empty() || utf8_length(piece[0]) != piece.size()) continue;
    std::size_t at = 0;
    const char32_t character = utf8_next(piece, at);
    if (character < basic_plane) characters_[character] = id;
  }
}

std::optional<std::int32_t> Vocabulary::id_of(std::string_view piece) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> Vocabulary::piece_of(std::int32_t id) const {
  if (id < 0 || id >= id_limit() || pieces_[static_cast<std::size_t>(id)].data() == nullptr) return std::nullopt;
  return pieces_[static_cast<std::size_t>(id)];
}

}  // namespace pergola
