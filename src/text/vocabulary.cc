#include "text/vocabulary.h"

#include <algorithm>

#include "text/utf8.h"

namespace pergola {

Vocabulary::Vocabulary(const JsonNode& node) : characters_(basic_plane, -1) {
  if (!node.is_object()) fail(node.where(), "must be an object of piece: id, is {}", node.json().type_name());
  std::size_t bytes = 0;
  std::int64_t largest = -1;
  for (const auto& [piece, value] : node.json().items()) {
    bytes += piece.size();
    const Where where = {.file = node.where().file, .field = node.where().field};
    largest = std::max(largest, JsonNode(value, where.file, where.field + "." + piece).integer(0, max_token_ids - 1));
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
    if (place.data() != nullptr) fail(node.where(), "gives id {} to both \"{}\" and \"{}\"", id, place, piece);
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
