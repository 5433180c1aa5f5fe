#include "trellis/decode.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "trellis/hadamard.h"
#include "trellis/tile.h"

namespace pergola {
namespace {

using Table = std::array<float, 65536>;

const Table& build_once(Codebook codebook) {
  static const auto build = [](Codebook which) {
    Table table{};
    for (std::uint32_t state = 0; state < table.size(); ++state) {
      table[state] = to_float(decode_state(which, static_cast<std::uint16_t>(state)));
    }
    return table;
  };
  switch (codebook) {
    case Codebook::three_inst: {
      static const Table table = build(Codebook::three_inst);
      return table;
    }
    case Codebook::mcg: {
      static const Table table = build(Codebook::mcg);
      return table;
    }
    case Codebook::mul1:
      break;
  }
  static const Table table = build(Codebook::mul1);
  return table;
}

float half_at(std::span<const std::byte> halves, std::int64_t index) {
  Half value;
  std::memcpy(&value.bits, halves.data() + 2 * index, sizeof value.bits);
  return to_float(value);
}

/// Calls use(row, column, state) for every weight, tile by tile.
template <typename Use>
void for_each_state(const TrellisView& trellis, Use&& use) {
  const std::int64_t tile_rows = trellis.in_features / kTileSide;
  const std::int64_t tile_columns = trellis.out_features / kTileSide;
  assert(static_cast<std::int64_t>(trellis.trellis.size()) == tile_rows * tile_columns * tile_bytes(trellis.bits));
  std::uint16_t states[kTileWeights];
  const std::byte* tile = trellis.trellis.data();
  for (std::int64_t i = 0; i < tile_rows; ++i) {
    for (std::int64_t j = 0; j < tile_columns; ++j, tile += tile_bytes(trellis.bits)) {
      decode_tile_states(tile, trellis.bits, states);
      for (int t = 0; t < kTileWeights; ++t) {
        use(kTileSide * i + tile_row(t), kTileSide * j + tile_column(t), states[t]);
      }
    }
  }
}

/// Rows become columns: out[i * rows + r] = in[r * width + i]. The other way round with the last two arguments
/// exchanged.
std::vector<double> transpose(std::span<const double> in, std::int64_t rows, std::int64_t width) {
  std::vector<double> out(in.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) out[i * rows + r] = in[r * width + i];
  }
  return out;
}

/// x inner, in transformed space. Rows lie side by side while they are summed, so that each weight meets neighbours in
/// memory.
std::vector<double> inner_product(const TrellisView& trellis, std::int64_t rows, std::span<const double> x) {
  const auto table = codebook_table(trellis.codebook);
  const std::vector<double> inputs = transpose(x, rows, trellis.in_features);
  std::vector<double> sums(static_cast<std::size_t>(rows * trellis.out_features));
  for_each_state(trellis, [&](std::int64_t row, std::int64_t column, std::uint16_t state) {
    const double weight = table[state];
    const double* from = inputs.data() + row * rows;
    double* to = sums.data() + column * rows;
    for (std::int64_t r = 0; r < rows; ++r) to[r] += from[r] * weight;
  });
  return transpose(sums, trellis.out_features, rows);
}

void dense_product(const DenseView& dense, std::int64_t rows, std::span<const double> x, std::span<double> y) {
  std::vector<double> weight(static_cast<std::size_t>(dense.columns));
  for (std::int64_t j = 0; j < dense.rows; ++j) {
    for (std::int64_t i = 0; i < dense.columns; ++i) weight[i] = dense_element(dense, j * dense.columns + i);
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < dense.columns; ++i) sum += weight[i] * x[r * dense.columns + i];
      y[r * dense.rows + j] = sum;
    }
  }
}

/// A trellis in logical widths: the input is extended with zeros, the output cut.
void padded_product(const TrellisView& trellis, const LinearView& linear, std::int64_t rows, std::span<const double> x,
                    std::span<double> y) {
  std::vector<double> wide_x(static_cast<std::size_t>(rows * trellis.in_features));
  std::vector<double> wide_y(static_cast<std::size_t>(rows * trellis.out_features));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < linear.in_features; ++i) {
      wide_x[r * trellis.in_features + i] = x[r * linear.in_features + i];
    }
  }
  trellis_product(trellis, rows, wide_x, wide_y);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < linear.out_features; ++j) {
      y[r * linear.out_features + j] = wide_y[r * trellis.out_features + j];
    }
  }
}

}  // namespace

std::span<const float, 65536> codebook_table(Codebook codebook) {
  return build_once(codebook);
}

std::vector<Half> decode_inner(const TrellisView& trellis) {
  std::vector<Half> inner(static_cast<std::size_t>(trellis.in_features * trellis.out_features));
  for_each_state(trellis, [&](std::int64_t row, std::int64_t column, std::uint16_t state) {
    inner[row * trellis.out_features + column] = decode_state(trellis.codebook, state);
  });
  return inner;
}

std::vector<double> effective_weight(const TrellisView& trellis) {
  const std::int64_t in = trellis.in_features;
  const std::int64_t out = trellis.out_features;
  const std::vector<Half> inner = decode_inner(trellis);
  std::vector<double> weight(inner.size());
  std::vector<double> line(static_cast<std::size_t>(in));
  for (std::int64_t j = 0; j < out; ++j) {
    for (std::int64_t i = 0; i < in; ++i) line[i] = to_float(inner[i * out + j]);
    hadamard_blocks(line);
    for (std::int64_t i = 0; i < in; ++i) weight[j * in + i] = line[i] * half_at(trellis.suh, i);
  }
  line.resize(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t j = 0; j < out; ++j) line[j] = weight[j * in + i];
    hadamard_blocks(line);
    for (std::int64_t j = 0; j < out; ++j) weight[j * in + i] = line[j] * half_at(trellis.svh, j);
  }
  return weight;
}

void trellis_product(const TrellisView& trellis, std::int64_t rows, std::span<const double> x, std::span<double> y) {
  const std::int64_t in = trellis.in_features;
  const std::int64_t out = trellis.out_features;
  assert(static_cast<std::int64_t>(x.size()) == rows * in && static_cast<std::int64_t>(y.size()) == rows * out);
  std::vector<double> transformed(x.begin(), x.end());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < in; ++i) transformed[r * in + i] *= half_at(trellis.suh, i);
  }
  hadamard_blocks(transformed);
  const std::vector<double> product = inner_product(trellis, rows, transformed);
  std::copy(product.begin(), product.end(), y.begin());
  hadamard_blocks(y);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < out; ++j) y[r * out + j] *= half_at(trellis.svh, j);
  }
}

void linear_product(const LinearView& linear, std::int64_t rows, std::span<const double> x, std::span<double> y) {
  assert(static_cast<std::int64_t>(x.size()) == rows * linear.in_features);
  assert(static_cast<std::int64_t>(y.size()) == rows * linear.out_features);
  if (const TrellisView* trellis = linear.trellis()) {
    padded_product(*trellis, linear, rows, x, y);
  } else {
    dense_product(*linear.dense(), rows, x, y);
  }
  if (!linear.bias) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < linear.out_features; ++j) {
      y[r * linear.out_features + j] += dense_element(*linear.bias, j);
    }
  }
}

float dense_element(const DenseView& dense, std::int64_t index) {
  assert(index >= 0 && (index + 1) * static_cast<std::int64_t>(size_of(dense.dtype)) <=
                           static_cast<std::int64_t>(dense.bytes.size()));
  const std::byte* at = dense.bytes.data() + index * static_cast<std::int64_t>(size_of(dense.dtype));
  std::uint16_t bits = 0;
  switch (dense.dtype) {
    case DType::f32: {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case DType::f16:
      std::memcpy(&bits, at, sizeof bits);
      return to_float(Half{bits});
    case DType::bf16:
      std::memcpy(&bits, at, sizeof bits);
      return to_float(BFloat16{bits});
    default:
      break;
  }
  assert(!"a dense weight is f32, f16 or bf16");
  return 0;
}

}  // namespace pergola
