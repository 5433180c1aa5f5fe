#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/opencl/variants.h"
#include "backend/precision.h"

namespace pergola::opencl {

/// The variants of one operation, by the rows that share a matrix: at most three, fewest rows first.
class RowTiles {
 public:
  static constexpr std::size_t kMost = 3;

  /// For this precision. With `matrix_units`, steps of more than one row use them. A processor (`gpu` false) has
  /// vectors of 16 values: it takes 4 rows no faster than 16, and is spared compiling for them.
  RowTiles(Precision precision, bool matrix_units, bool gpu);

  std::size_t count() const { return count_; }
  const Variant& at(std::size_t index) const { return *variants_[index]; }
  /// The variant for `rows` rows: the first that takes them at once, else the last.
  std::size_t index_for(std::int64_t rows) const;

 private:
  std::array<const Variant*, kMost> variants_{};
  std::size_t count_ = 0;
};

/// The table's entry. It must be there.
const Variant& find_variant(int rows, Arithmetic arithmetic, int bytes = 1);

/// Local memory of a work-group whose inputs are split over `parts`.
std::size_t scratch_bytes(const Variant& variant, std::int64_t parts);

/// Steps of at most so many rows run experts pick by pick in two launches; longer ones group their picks by expert.
inline constexpr std::int64_t kDecodeRows = 4;

/// The variant (not the first) for grouped experts: by the rows that an expert gets on average.
std::size_t expert_tile(const RowTiles& tiles, std::int64_t picks, std::int64_t experts);

/// Most units of work that `picks` picks of `experts` experts make.
std::int64_t most_units(std::int64_t picks, std::int64_t experts, int tile_rows);

/// In how many parts the inputs of one work-group are split: enough to fill `lanes` work-items with `groups` groups of
/// 64, within `most_items` of a work-group and the local memory.
std::int64_t input_parts(std::int64_t lanes, std::int64_t groups, std::int64_t tile_rows, std::int64_t in_features,
                         std::size_t most_items);

}  // namespace pergola::opencl
