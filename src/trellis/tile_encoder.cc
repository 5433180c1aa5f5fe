#include "trellis/tile_encoder.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "trellis/tile_encoder_step.h"

namespace pergola {

namespace viterbi {

void step_scalar(const float* values, int bits, const float* from0, const float* from1, float weight0, float weight1,
                 float* to0, float* to1) {
  const int nodes = 1 << (16 - bits), branches = 1 << bits, in_stride = 1 << (16 - 2 * bits);
  for (int e = 0; e < nodes; ++e) {
    float best0 = std::numeric_limits<float>::infinity(), best1 = best0;
    for (int b = 0; b < branches; ++b) {
      const float value = values[e * branches + b];
      const int in = b * in_stride + (e >> bits);
      best0 = std::min(best0, from0[in] + (value - weight0) * (value - weight0));
      best1 = std::min(best1, from1[in] + (value - weight1) * (value - weight1));
    }
    to0[e] = best0;
    to1[e] = best1;
  }
}

}  // namespace viterbi

namespace {

struct Kernel {
  viterbi::Step step;
  int lanes;
};

Kernel kernel_for(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return {viterbi::step_avx512, viterbi::kAvx512Lanes};
  if (isa == Isa::avx2) return {viterbi::step_avx2, viterbi::kAvx2Lanes};
#endif
  (void)isa;
  return {viterbi::step_scalar, viterbi::kScalarLanes};
}

/// Floats that a step may read beyond the last in-node.
constexpr int kSlack = 16;

}  // namespace

struct TileEncoder::Work {
  int bits;
  int nodes;
  Kernel kernel;
  std::vector<float> values;  ///< codebook in the kernel's order
  std::vector<float> plain;   ///< codebook by state
  /// costs[tile][i] are the path costs by node before the i-th visited position; the last entry is after all.
  std::array<std::vector<float>, kTilesAtOnce> costs;

  float* row(int tile, int index) {
    return costs[static_cast<std::size_t>(tile)].data() + std::int64_t{index} * (nodes + kSlack);
  }

  /// Visits `count` positions from `first` on (cyclically); row 0 must hold the starting costs.
  void forward(const float* const (&weights)[kTilesAtOnce], int first, int count) {
    for (int i = 0; i < count; ++i) {
      const int t = (first + i) % kTileWeights;
      kernel.step(values.data(), bits, row(0, i), row(1, i), weights[0][t], weights[1][t], row(0, i + 1),
                  row(1, i + 1));
    }
  }

  /// The state that reaches out-node `node` most cheaply from costs row `from`; ties go to the lowest branch.
  int best_state(const float* from, int node, float weight) const {
    int best = node;
    float lowest = std::numeric_limits<float>::infinity();
    for (int b = 0; b < (1 << bits); ++b) {
      const int state = (b << (16 - bits)) | node;
      const float distance = plain[static_cast<std::size_t>(state)] - weight;
      const float cost = from[state >> bits] + distance * distance;
      if (cost < lowest) {
        lowest = cost;
        best = state;
      }
    }
    return best;
  }
};

TileEncoder::TileEncoder(Codebook codebook, int bits, Isa isa) : work_(std::make_unique<Work>()) {
  assert(bits >= kMinBits && bits <= kMaxBits && isa <= cpu_features().best);
  Work& work = *work_;
  work.bits = bits;
  work.nodes = 1 << (16 - bits);
  work.kernel = kernel_for(isa);
  work.plain.resize(65536);
  work.values.resize(65536);
  const int lanes = work.kernel.lanes;
  for (int state = 0; state < 65536; ++state) {
    const float value = to_float(decode_state(codebook, static_cast<std::uint16_t>(state)));
    const int e = state & (work.nodes - 1), b = state >> (16 - bits);
    work.plain[static_cast<std::size_t>(state)] = value;
    work.values[static_cast<std::size_t>((e / lanes * (1 << bits) + b) * lanes + e % lanes)] = value;
  }
  for (auto& costs : work.costs) costs.resize(static_cast<std::size_t>(work.nodes + kSlack) * (kTileWeights + 1));
}

TileEncoder::~TileEncoder() = default;

void TileEncoder::encode(std::span<const float> targets, std::span<std::uint16_t> states) {
  assert(targets.size() % kTileWeights == 0 && states.size() == targets.size());
  Work& work = *work_;
  const auto tiles = static_cast<std::int64_t>(targets.size() / kTileWeights);
  constexpr int kHalf = kTileWeights / 2;
  for (std::int64_t first = 0; first < tiles; first += kTilesAtOnce) {
    // An odd last tile is searched twice at once; the second copy is dropped.
    const int count = static_cast<int>(std::min<std::int64_t>(kTilesAtOnce, tiles - first));
    const float* weights[kTilesAtOnce] = {targets.data() + first * kTileWeights,
                                          targets.data() + (first + count - 1) * kTileWeights};

    // Pass 1: from the middle of the tile, once around, with a free start. Half a tile later the start no longer
    // matters: the node before position 0 on the best path is a good seam.
    for (int tile = 0; tile < kTilesAtOnce; ++tile) std::fill_n(work.row(tile, 0), work.nodes, 0.0f);
    work.forward(weights, kHalf, kTileWeights);
    std::array<int, kTilesAtOnce> seam{};
    for (int tile = 0; tile < kTilesAtOnce; ++tile) {
      const float* last = work.row(tile, kTileWeights);
      int node = static_cast<int>(std::min_element(last, last + work.nodes) - last);
      for (int t = kHalf - 1; t >= 0; --t)
        node = work.best_state(work.row(tile, kHalf + t), node, weights[tile][t]) >> work.bits;
      seam[static_cast<std::size_t>(tile)] = node;
    }

    // Pass 2: from the seam node around to the seam node.
    for (int tile = 0; tile < kTilesAtOnce; ++tile) {
      std::fill_n(work.row(tile, 0), work.nodes, std::numeric_limits<float>::infinity());
      work.row(tile, 0)[seam[static_cast<std::size_t>(tile)]] = 0.0f;
    }
    work.forward(weights, 0, kTileWeights);
    for (int tile = 0; tile < count; ++tile) {
      int node = seam[static_cast<std::size_t>(tile)];
      std::uint16_t* out = states.data() + (first + tile) * kTileWeights;
      for (int t = kTileWeights - 1; t >= 0; --t) {
        const int state = work.best_state(work.row(tile, t), node, weights[tile][t]);
        out[t] = static_cast<std::uint16_t>(state);
        node = state >> work.bits;
      }
    }
  }
}

}  // namespace pergola
