#include "quantize/linear_quantizer.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/cpu_features.h"
#include "base/error.h"
#include "quantize/product_kernel.h"
#include "quantize/signs.h"
#include "trellis/decode.h"
#include "trellis/hadamard.h"
#include "trellis/tile.h"
#include "trellis/tile_encoder.h"

namespace pergola {
namespace {

/// Root mean square that rows are brought to before the scale g: that of the 3INST codebook, for all codebooks (the
/// field's convention).
constexpr double kCodebookRms = 1.24371088;
/// Added to the Hessian's diagonal, as a share of its mean.
constexpr double kDamping = 0.025;
/// Columns that one task encodes from the last input to the first: two tiles, what the encoder takes at once.
constexpr std::int64_t kStrip = 32;

/// The scale of Gaussian weights with the least error at K = 1..8: where the search starts (exl3's published table).
constexpr std::array<std::array<double, 8>, 3> kGaussianScale{{{1.15, 1.00, 0.93, 0.90, 0.88, 0.83, 0.82, 0.80},
                                                               {1.12, 0.99, 0.95, 0.90, 0.87, 0.83, 0.82, 0.82},
                                                               {0.88, 0.80, 0.75, 0.73, 0.72, 0.70, 0.69, 0.67}}};

/// Rows are inputs, columns outputs.
struct Grid {
  std::int64_t rows;
  std::int64_t columns;
  std::vector<float> values;

  float* row(std::int64_t i) { return values.data() + i * columns; }
  const float* row(std::int64_t i) const { return values.data() + i * columns; }
};

Grid transposed(const LinearJob& job) {
  Grid grid{job.in_features, job.out_features,
            std::vector<float>(static_cast<std::size_t>(job.in_features * job.out_features))};
  for (std::int64_t j = 0; j < job.out_features; ++j) {
    for (std::int64_t i = 0; i < job.in_features; ++i) {
      const float value = job.weight[static_cast<std::size_t>(j * job.in_features + i)];
      if (!std::isfinite(value)) fail({.tensor = job.name}, "weight [{}, {}] is not a finite number", j, i);
      grid.row(i)[j] = value;
    }
  }
  return grid;
}

/// Column scales: random signs times each column's RMS over the mean of them all, rounded as they will be stored. A
/// zero column gets zero.
std::vector<Half> output_scales(const Grid& weight, SignSource& signs) {
  std::vector<double> rms(static_cast<std::size_t>(weight.columns));
  for (std::int64_t i = 0; i < weight.rows; ++i) {
    for (std::int64_t j = 0; j < weight.columns; ++j)
      rms[static_cast<std::size_t>(j)] += double{weight.row(i)[j]} * double{weight.row(i)[j]};
  }
  double mean = 0;
  for (double& value : rms) mean += value = std::sqrt(value / static_cast<double>(weight.rows));
  mean /= static_cast<double>(weight.columns);
  std::vector<Half> scales;
  for (double value : rms)
    scales.push_back(to_half(value == 0 ? 0.0f : signs.next() * static_cast<float>(value / mean)));
  return scales;
}

/// In place weight = diag(1 / scale) weight, then the Hadamard transform down the columns.
void divide_rows_and_transform(Grid& weight, std::span<const float> scale) {
  for (std::int64_t i = 0; i < weight.rows; ++i) {
    const float factor = 1.0f / scale[static_cast<std::size_t>(i)];
    for (std::int64_t j = 0; j < weight.columns; ++j) weight.row(i)[j] *= factor;
  }
  std::vector<float> column(static_cast<std::size_t>(weight.rows));
  for (std::int64_t j = 0; j < weight.columns; ++j) {
    for (std::int64_t i = 0; i < weight.rows; ++i) column[static_cast<std::size_t>(i)] = weight.row(i)[j];
    hadamard_blocks(column);
    for (std::int64_t i = 0; i < weight.rows; ++i) weight.row(i)[j] = column[static_cast<std::size_t>(i)];
  }
}

/// weight diag(1 / svh) Hn: the output side of the regularisation.
void remove_output_side(Grid& weight, std::span<const Half> svh) {
  std::vector<float> factor;
  for (Half scale : svh) factor.push_back(to_float(scale) == 0 ? 0.0f : 1.0f / to_float(scale));
  for (std::int64_t i = 0; i < weight.rows; ++i) {
    for (std::int64_t j = 0; j < weight.columns; ++j) weight.row(i)[j] *= factor[static_cast<std::size_t>(j)];
    hadamard_blocks(std::span(weight.row(i), static_cast<std::size_t>(weight.columns)));
  }
}

/// Row scales before g: a random sign times the row's RMS over kCodebookRms.
std::vector<float> input_scales(const Grid& weight, SignSource& signs) {
  std::vector<float> scales;
  for (std::int64_t i = 0; i < weight.rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < weight.columns; ++j) sum += double{weight.row(i)[j]} * double{weight.row(i)[j]};
    const double rms = std::sqrt(sum / static_cast<double>(weight.columns));
    scales.push_back(signs.next() * static_cast<float>((rms == 0 ? 0.1 : rms) / kCodebookRms));
  }
  return scales;
}

Half rounded_scale(double value) {
  const Half half = to_half(static_cast<float>(value));
  if ((half.bits & 0x7FFF) == 0)
    return {static_cast<std::uint16_t>(half.bits | 1)};  // the smallest scale rather than none
  return half;
}

/// Hn diag(scale) H diag(scale) Hn, zero where the linear is padded.
std::vector<float> rotated_hessian(const Hessian& hessian, std::span<const float> scale) {
  const std::int64_t n = std::ssize(scale), known = hessian.features();
  std::vector<float> matrix(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < known; ++i) {
    for (std::int64_t j = 0; j < known; ++j) {
      matrix[static_cast<std::size_t>(i * n + j)] =
          hessian.mean(i, j) * scale[static_cast<std::size_t>(i)] * scale[static_cast<std::size_t>(j)];
    }
  }
  for (int side = 0; side < 2; ++side) {
    hadamard_blocks(matrix);  // along the rows; the matrix is symmetric before, transposed in between
    for (std::int64_t i = 0; i < n && side == 0; ++i) {
      for (std::int64_t j = 0; j < i; ++j)
        std::swap(matrix[static_cast<std::size_t>(i * n + j)], matrix[static_cast<std::size_t>(j * n + i)]);
    }
  }
  return matrix;
}

/// The value of tr(X^T H X) that rows of one block add, with y = sum over later rows: |root^T y|^2.
double block_power(const float* root, const float* y, std::int64_t stride, std::int64_t columns) {
  double power = 0;
  for (int a = 0; a < kTileSide; ++a) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int b = a; b < kTileSide; ++b) sum += double{root[b * kTileSide + a]} * double{y[b * stride + j]};
      power += sum * sum;
    }
  }
  return power;
}

struct Errors {
  double proxy = 0;
  double proxy_power = 0;
  double plain = 0;
  double plain_power = 0;
};

/// Block LDLQ of kStrip columns, from the last 16 inputs to the first: each block's target is its weights plus what the
/// errors of the blocks after it can still be made good for.
class Strip {
 public:
  static constexpr std::size_t kWeights = 2 * kTileWeights;  ///< of a row block: two tiles

  /// `ldl` may be null. Writes the tiles to `trellis`, which other strips share.
  Strip(const Grid& weight, const BlockLdl* ldl, std::int64_t first_column, Codebook codebook, int bits,
        std::vector<std::byte>& trellis)
      : weight_(weight),
        ldl_(ldl),
        first_column_(first_column),
        table_(codebook_table(codebook)),
        bits_(bits),
        trellis_(trellis) {}

  /// The targets of the row block at `row`, in stream order.
  void prepare(std::int64_t row, std::span<float, kWeights> tiles) {
    const std::int64_t k = weight_.rows, after = row + kTileSide;
    if (error_.empty()) {
      error_.resize(static_cast<std::size_t>(k * kStrip));
      if (ldl_ != nullptr) original_.resize(error_.size());
    }
    for (int i = 0; i < kTileSide; ++i)
      std::copy_n(weight_.row(row + i) + first_column_, kStrip, target_.data() + i * kStrip);
    if (ldl_ != nullptr) {
      static const ProductKernel product = product_kernel();
      std::copy_n(target_.data(), target_.size(), original_.data() + row * kStrip);
      power_ = target_;
      const float* lower = ldl_->lower.data() + after * k + row;
      product(lower, k, error_.data() + after * kStrip, kStrip, target_.data(), kStrip, kTileSide, kStrip, k - after);
      product(lower, k, original_.data() + after * kStrip, kStrip, power_.data(), kStrip, kTileSide, kStrip, k - after);
    }
    for (int i = 0; i < 2 * kTileWeights; ++i) {
      const int t = i % kTileWeights;
      tiles[static_cast<std::size_t>(i)] =
          target_[static_cast<std::size_t>(tile_row(t) * kStrip + tile_column(t) + i / kTileWeights * kTileSide)];
    }
  }

  /// Takes the states that were found for what prepare() gave.
  void accept(std::int64_t row, std::span<const std::uint16_t, kWeights> states) {
    for (int half = 0; half < 2; ++half) {
      const std::span<const std::uint16_t, kTileWeights> part(states.data() + half * kTileWeights, kTileWeights);
      const std::int64_t tile = row / kTileSide * (weight_.columns / kTileSide) + first_column_ / kTileSide + half;
      pack_tile(part, bits_, trellis_.data() + tile * tile_bytes(bits_));
      for (int t = 0; t < kTileWeights; ++t) {
        const int i = tile_row(t), j = tile_column(t) + half * kTileSide;
        const float value = table_[part[static_cast<std::size_t>(t)]], wanted = weight_.row(row + i)[first_column_ + j];
        error_[static_cast<std::size_t>((row + i) * kStrip + j)] = wanted - value;
        target_[static_cast<std::size_t>(i * kStrip + j)] -= value;
        sum_.plain += (double{wanted} - double{value}) * (double{wanted} - double{value});
        sum_.plain_power += double{wanted} * double{wanted};
      }
    }
    if (ldl_ == nullptr) return;
    const float* root = ldl_->root.data() + row * kTileSide;
    sum_.proxy += block_power(root, target_.data(), kStrip, kStrip);
    sum_.proxy_power += block_power(root, power_.data(), kStrip, kStrip);
  }

  const Errors& errors() const { return sum_; }
  /// Gives the memory of a finished strip back.
  void forget() {
    error_ = {};
    original_ = {};
  }

 private:
  const Grid& weight_;
  const BlockLdl* ldl_;
  std::int64_t first_column_;
  std::span<const float, 65536> table_;
  int bits_;
  std::vector<std::byte>& trellis_;
  std::vector<float> error_;     ///< [rows, kStrip]
  std::vector<float> original_;  ///< [rows, kStrip], with `ldl` only
  std::array<float, kTileSide * kStrip> target_{}, power_{};
  Errors sum_;
};

}  // namespace

TrellisView QuantizedLinear::view() const {
  return {
      in_features, out_features, bits, codebook, trellis, std::as_bytes(std::span(suh)), std::as_bytes(std::span(svh))};
}

struct LinearQuantizer::State {
  ThreadPool& pool;
  TileBatchEncoder* device;  ///< may be null
  /// encoders[member] by (codebook, bits): made when first needed.
  std::vector<std::map<std::pair<Codebook, int>, std::unique_ptr<TileEncoder>>> encoders;

  TileEncoder& encoder(int member, Codebook codebook, int bits) {
    auto& slot = encoders[static_cast<std::size_t>(member)][{codebook, bits}];
    if (!slot) slot = std::make_unique<TileEncoder>(codebook, bits, std::min(cpu_features().best, Isa::avx512));
    return *slot;
  }

  double search_scale(const Grid& weight, Codebook codebook, int bits);
  double sample_error(std::span<const float> tiles, double scale, Codebook codebook, int bits);
  void encode_tiles(int member, Codebook codebook, int bits, std::span<const float> targets,
                    std::span<std::uint16_t> states);
  void encode_strips(std::span<Strip> strips, std::int64_t rows, const QuantizedLinear& out);
};

/// Mean square error of sampled tiles when they are scaled by `scale`, encoded, and scaled back.
double LinearQuantizer::State::sample_error(std::span<const float> tiles, double scale, Codebook codebook, int bits) {
  std::vector<float> scaled;
  for (float value : tiles) scaled.push_back(value * static_cast<float>(scale));
  std::vector<std::uint16_t> states(tiles.size());
  if (device != nullptr) {
    device->encode(codebook, bits, scaled, states);
  } else {
    constexpr std::size_t kPair = 2 * kTileWeights;
    pool.parallel_for(std::ssize(tiles) / (2 * kTileWeights), [&](std::int64_t pair, int member) {
      const std::size_t first = static_cast<std::size_t>(pair) * kPair;
      encode_tiles(member, codebook, bits, std::span(scaled).subspan(first, kPair),
                   std::span(states).subspan(first, kPair));
    });
  }
  const std::span<const float, 65536> table = codebook_table(codebook);
  double sum = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const double error = double{table[states[i]]} / scale - double{tiles[i]};
    sum += error * error;
  }
  return sum / static_cast<double>(tiles.size());
}

/// The best factor between regularised weights and the codebook: three samples around the Gaussian one, then the vertex
/// of the parabola through them. The samples are a 24th of all tiles, so the search costs an eighth of the encoding.
double LinearQuantizer::State::search_scale(const Grid& weight, Codebook codebook, int bits) {
  const double start = kGaussianScale[static_cast<std::size_t>(codebook)][static_cast<std::size_t>(bits - 1)];
  const std::int64_t tile_rows = weight.rows / kTileSide, tile_columns = weight.columns / kTileSide,
                     all = tile_rows * tile_columns;
  const std::int64_t count = std::max<std::int64_t>(8, all / 24 / 2 * 2);
  std::vector<float> tiles(static_cast<std::size_t>(count) * kTileWeights);
  for (std::int64_t s = 0; s < count; ++s) {
    const std::int64_t tile = s * all / count;  // evenly over the matrix, every other one shifted to another column
    const std::int64_t row = tile / tile_columns * kTileSide, column = (tile + s) % tile_columns * kTileSide;
    for (int t = 0; t < kTileWeights; ++t) {
      tiles[static_cast<std::size_t>(s * kTileWeights + t)] = weight.row(row + tile_row(t))[column + tile_column(t)];
    }
  }
  constexpr double kStep = 0.06;
  std::array<double, 3> error{};
  for (int i = 0; i < 3; ++i)
    error[static_cast<std::size_t>(i)] = sample_error(tiles, start * (1 + kStep * (i - 1)), codebook, bits);
  const double curvature = error[0] - 2 * error[1] + error[2];
  double shift = curvature > 0 ? (error[0] - error[2]) / (2 * curvature) : (error[0] < error[2] ? -1.0 : 1.0);
  shift = std::clamp(shift, -2.0, 2.0);
  return start * (1 + kStep * shift);
}

void LinearQuantizer::State::encode_tiles(int member, Codebook codebook, int bits, std::span<const float> targets,
                                          std::span<std::uint16_t> states) {
  encoder(member, codebook, bits).encode(targets, states);
}

/// Every strip goes from its last row block to its first; strips do not depend on each other. With a device encoder all
/// strips take a row block at the same time, so that the device gets their tiles at once.
void LinearQuantizer::State::encode_strips(std::span<Strip> strips, std::int64_t rows, const QuantizedLinear& out) {
  const auto count = static_cast<std::int64_t>(strips.size());
  if (device == nullptr) {
    return pool.parallel_for(count, [&](std::int64_t s, int member) {
      std::array<float, Strip::kWeights> tiles;
      std::array<std::uint16_t, Strip::kWeights> states;
      for (std::int64_t row = rows - kTileSide; row >= 0; row -= kTileSide) {
        strips[static_cast<std::size_t>(s)].prepare(row, tiles);
        encode_tiles(member, out.codebook, out.bits, tiles, states);
        strips[static_cast<std::size_t>(s)].accept(row, states);
      }
      strips[static_cast<std::size_t>(s)].forget();
    });
  }
  std::vector<float> tiles(strips.size() * Strip::kWeights);
  std::vector<std::uint16_t> states(tiles.size());
  const auto part = [](auto& all, std::int64_t s) {
    return std::span(all).subspan(static_cast<std::size_t>(s) * Strip::kWeights).template first<Strip::kWeights>();
  };
  for (std::int64_t row = rows - kTileSide; row >= 0; row -= kTileSide) {
    pool.parallel_for(count,
                      [&](std::int64_t s, int) { strips[static_cast<std::size_t>(s)].prepare(row, part(tiles, s)); });
    device->encode(out.codebook, out.bits, tiles, states);
    pool.parallel_for(count,
                      [&](std::int64_t s, int) { strips[static_cast<std::size_t>(s)].accept(row, part(states, s)); });
  }
}

LinearQuantizer::LinearQuantizer(ThreadPool& pool, TileBatchEncoder* device) : state_(new State{pool, device, {}}) {
  state_->encoders.resize(static_cast<std::size_t>(pool.size()));
}

LinearQuantizer::~LinearQuantizer() = default;

QuantizedLinear LinearQuantizer::encode(const LinearJob& job, const Hessian* hessian) {
  assert(job.in_features % 128 == 0 && job.out_features % 128 == 0 &&
         std::ssize(job.weight) == job.in_features * job.out_features);
  QuantizedLinear out{job.in_features, job.out_features, job.bits, job.codebook, {}, {}, {}, 0, 0, 0};
  out.trellis.resize(static_cast<std::size_t>(job.in_features * job.out_features * job.bits / 8));
  SignSource signs(job.seed);
  Grid weight = transposed(job);
  out.svh = output_scales(weight, signs);
  remove_output_side(weight, out.svh);
  std::vector<float> scales = input_scales(weight, signs);
  {
    Grid regular = weight;
    divide_rows_and_transform(regular, scales);
    out.scale = state_->search_scale(regular, job.codebook, job.bits);
  }
  for (float& scale : scales) {
    const Half stored = rounded_scale(scale / out.scale);
    out.suh.push_back(stored);
    scale = to_float(stored);
  }
  divide_rows_and_transform(weight, scales);
  BlockLdl ldl;
  const bool calibrated = hessian != nullptr && hessian->usable();
  if (calibrated) ldl = factor(rotated_hessian(*hessian, scales), job.in_features, kDamping);

  std::vector<Strip> strips;
  for (std::int64_t column = 0; column < job.out_features; column += kStrip)
    strips.emplace_back(weight, calibrated ? &ldl : nullptr, column, job.codebook, job.bits, out.trellis);
  state_->encode_strips(strips, job.in_features, out);
  Errors sum;
  for (const Strip& strip : strips) {
    sum.proxy += strip.errors().proxy;
    sum.proxy_power += strip.errors().proxy_power;
    sum.plain += strip.errors().plain;
    sum.plain_power += strip.errors().plain_power;
  }
  out.weight_error = sum.plain_power > 0 ? sum.plain / sum.plain_power : 0;
  out.proxy_error = !calibrated ? out.weight_error : sum.proxy_power > 0 ? sum.proxy / sum.proxy_power : 0;
  return out;
}

}  // namespace pergola
