#pragma once

#include <cstdint>

namespace pergola {

/// A run of rows, columns, heads, features: first, first + 1, ..., first + count - 1.
struct IndexRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool operator==(const IndexRange&) const = default;
};

}  // namespace pergola
