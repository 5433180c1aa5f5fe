#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace pergola::cuda {

/// Tail-biting Viterbi search over all 65,536 states of each of a tile's 256 positions (trellis/tile_encoder.h), a
/// thread block a tile. 2 * 65,536 state evaluations a weight.
///
/// The states a thread evaluates are the same in every step, so their values stay in its registers; path costs by node
/// (2^(16-K) floats, fp32) go from step to step through shared memory, and to `rows` for the way back.
struct TileSearch {
  const std::uint16_t* values = nullptr;  ///< binary16 codebook by state [65536]
  const float* targets = nullptr;         ///< [tiles, 256]
  std::uint16_t* states = nullptr;        ///< [tiles, 256]
  float* rows = nullptr;                  ///< tile_search_row_floats(bits) for each thread block
  std::int64_t tiles = 0;
};

/// Work space of one thread block, in floats: the costs before each of 256 positions and after the last.
constexpr std::size_t tile_search_row_floats(int bits) {
  return std::size_t{257} << (16 - bits);
}

/// Searches all tiles with `blocks` thread blocks; `bits` is K, 1..8.
void tile_search(cudaStream_t stream, int bits, int blocks, const TileSearch& search);

}  // namespace pergola::cuda
