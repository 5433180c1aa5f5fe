#pragma once

#include <cstdint>

namespace pergola::cuda {

/// The device's own order of trellis words: the same bytes as on disk, arranged so that every load of a warp is 32 x 16
/// bytes whatever K is.
///
/// A unit covers 64 inputs x 128 outputs and takes 1024 * K bytes; units follow each other with inputs running fastest:
/// [column group][k unit]. A unit is two halves of 64 outputs (four tiles each); a half is K rows of 32 lanes x 16
/// bytes. Lane (g = lane / 4, q = lane % 4) owns the column pairs (g, g + 8) of the four tiles of input band q: word w
/// of pair `tile` is its word number tile * K + w, four to a 16-byte row.
inline constexpr std::int64_t kUnitInputs = 64;
inline constexpr std::int64_t kUnitOutputs = 128;

/// Bytes of one unit.
constexpr std::int64_t unit_bytes(int bits) {
  return 1024 * static_cast<std::int64_t>(bits);
}

#if defined(__CUDACC__)
#define PERGOLA_BOTH_SIDES __host__ __device__
#else
#define PERGOLA_BOTH_SIDES
#endif

/// A word's two places: `packed` of the packed order, `disk` of the words on disk (tiles [in/16][out/16] of 8 * K
/// words).
struct WordPlaces {
  std::int64_t packed = 0;
  std::int64_t disk = 0;
};

/// Places of word `index` of a piece of a matrix in x out: the units [first_unit, first_unit + piece_units) of every
/// column group, in packed order among themselves. `disk` counts from the piece's first word on disk.
PERGOLA_BOTH_SIDES constexpr WordPlaces word_places(std::int64_t index, std::int64_t in_features,
                                                    std::int64_t out_features, int bits, std::int64_t first_unit,
                                                    std::int64_t piece_units) {
  const std::int64_t words_per_unit = 256 * bits, inside = index % words_per_unit,
                     number_of_unit = index / words_per_unit;
  const std::int64_t unit = number_of_unit % piece_units, group = number_of_unit / piece_units;
  const std::int64_t component = inside & 3, lane = (inside >> 2) & 31, row_and_half = inside >> 7;
  const std::int64_t row = row_and_half % bits, half = row_and_half / bits;
  const std::int64_t number = row * 4 + component, tile = number / bits, word = number % bits;
  const std::int64_t disk_tile = (unit * 4 + (lane & 3)) * (out_features / 16) + group * 8 + half * 4 + tile;
  return {(group * (in_features / kUnitInputs) + first_unit + unit) * words_per_unit + inside,
          disk_tile * 8 * bits + (lane >> 2) * bits + word};
}

}  // namespace pergola::cuda
