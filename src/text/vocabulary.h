#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/json_node.h"

namespace pergola {

/// Ids must be below this: 4 times the largest vocabulary in use, small enough that a table over all ids is harmless.
inline constexpr std::int64_t max_token_ids = std::int64_t{1} << 21;

/// The pieces of a BPE model and their ids. Ids may have holes.
class Vocabulary {
 public:
  /// Reads a JSON object of piece: id. Throws Error when it is not one, when an id is out of range or given twice.
  explicit Vocabulary(const JsonNode& node);
  Vocabulary(Vocabulary&&) noexcept = default;
  Vocabulary& operator=(Vocabulary&&) noexcept = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::optional<std::int32_t> id_of(std::string_view piece) const;
  /// The piece of `id`, or nothing when there is none.
  std::optional<std::string_view> piece_of(std::int32_t id) const;

  /// Id of the piece that is this single code point, or -1.
  std::int32_t id_of_character(char32_t code_point, std::string_view text) const {
    if (code_point < basic_plane) return characters_[code_point];
    return id_of(text).value_or(-1);
  }

  std::size_t size() const { return ids_.size(); }
  /// One more than the largest id.
  std::int32_t id_limit() const { return static_cast<std::int32_t>(pieces_.size()); }

 private:
  static constexpr char32_t basic_plane = 0x10000;

  std::vector<char> storage_;             // all pieces, one after another; the views below point into it
  std::vector<std::string_view> pieces_;  // by id; data() is null for a hole
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::vector<std::int32_t> characters_;  // single code points of the basic plane
};

}  // namespace pergola
