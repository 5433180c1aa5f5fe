#include "backend/reference/delta_net.h"

#include <cassert>
#include <cmath>
#include <vector>

#include "backend/reference/arithmetic.h"
#include "backend/reference/delta_rule.h"
#include "backend/reference/host_buffer.h"

namespace pergola::reference {

namespace {

constexpr double kL2Epsilon = 1e-6;

/// x <- x * rsqrt(sum(x^2) + eps) * factor.
void l2_normalize(float* x, std::int64_t n, double factor) {
  const double scale = factor / std::sqrt(dot(x, x, n) + kL2Epsilon);
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] * scale);
}

/// The rows of one sequence, and its slot's window.
struct Piece {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  float* window = nullptr;  ///< [kernel - 1, channels], oldest first
  float* state = nullptr;   ///< [value_heads, key_dim, value_dim]
};

Piece piece_of(const Batch& batch, const DeltaNetState& state, std::int64_t sequence) {
  const std::int32_t* start = batch.row_start.data<std::int32_t>();
  const std::int64_t slot = batch.slots.data<std::int32_t>()[sequence];
  return {start[sequence], start[sequence + 1] - start[sequence], state.window.row<float>(slot),
          state.state.row<float>(slot)};
}

/// The convolution's input `back` tokens before row t of the piece.
const float* input_row(const DeltaNet& layer, const Tensor& qkv, const Piece& piece, std::int64_t t,
                       std::int64_t back) {
  if (back <= t) return qkv.row<float>(piece.first + t - back);
  return piece.window + (layer.kernel - 1 + t - back) * layer.channels();
}

/// One row of the convolution with SiLU, then the L2 norms of its q and k heads.
void convolve_row(const DeltaNet& layer, const Tensor& qkv, const Piece& piece, std::int64_t t, float* out) {
  const std::int64_t channels = layer.channels();
  std::vector<double> sums(static_cast<std::size_t>(channels), 0.0);
  for (std::int64_t tap = 0; tap < layer.kernel; ++tap) {
    const float* in = input_row(layer, qkv, piece, t, layer.kernel - 1 - tap);
    for (std::int64_t c = 0; c < channels; ++c)
      sums[static_cast<std::size_t>(c)] += static_cast<double>(layer.conv_weight.row<float>(c)[tap]) * in[c];
  }
  for (std::int64_t c = 0; c < channels; ++c) out[c] = static_cast<float>(silu(sums[static_cast<std::size_t>(c)]));
  const double query_factor = 1.0 / std::sqrt(static_cast<double>(layer.key_dim));
  for (std::int64_t h = 0; h < 2 * layer.key_heads; ++h) {
    l2_normalize(out + h * layer.key_dim, layer.key_dim, h < layer.key_heads ? query_factor : 1.0);
  }
}

/// Keeps the last kernel - 1 inputs, which may reach back into the old window.
void update_window(const DeltaNet& layer, const Tensor& qkv, const Piece& piece) {
  if (piece.rows == 0) return;
  const std::int64_t channels = layer.channels();
  for (std::int64_t i = 0; i < layer.kernel - 1;
       ++i) {  // oldest first: an entry is read before a later pass overwrites it
    const float* in = input_row(layer, qkv, piece, piece.rows - 1, layer.kernel - 2 - i);
    std::copy(in, in + channels, piece.window + i * channels);
  }
}

/// The recurrence of one value head over one piece, then the gated norm.
void run_head(const DeltaNet& layer, const Tensor& conv, const Tensor& z, const Tensor& b, const Tensor& a,
              const Piece& piece, std::int64_t head, const Tensor& out) {
  const std::int64_t key_head = head / (layer.value_heads / layer.key_heads);
  const std::int64_t key_width = std::int64_t{layer.key_heads} * layer.key_dim;
  const double rate = -std::exp(static_cast<double>(layer.a_log.data<float>()[head]));
  std::vector<float> g(static_cast<std::size_t>(piece.rows));
  std::vector<float> beta(static_cast<std::size_t>(piece.rows));
  for (std::int64_t t = 0; t < piece.rows; ++t) {
    const auto i = static_cast<std::size_t>(t);
    g[i] = static_cast<float>(
        rate * softplus(static_cast<double>(a.row<float>(piece.first + t)[head]) + layer.dt_bias.data<float>()[head]));
    beta[i] = static_cast<float>(sigmoid(b.row<float>(piece.first + t)[head]));
  }
  const float* rows = conv.row<float>(piece.first);
  DeltaRuleInputs<float> in{piece.rows, layer.key_dim, layer.value_dim};
  in.q = rows + key_head * layer.key_dim;
  in.k = rows + key_width + key_head * layer.key_dim;
  in.v = rows + 2 * key_width + head * layer.value_dim;
  in.q_stride = in.k_stride = in.v_stride = conv.stride;
  in.g = g.data();
  in.beta = beta.data();
  float* result = out.row<float>(piece.first) + head * layer.value_dim;
  delta_rule_recurrent(in, piece.state + head * layer.key_dim * layer.value_dim, result, out.stride);

  for (std::int64_t t = 0; t < piece.rows; ++t) {
    float* row = result + t * out.stride;
    const float* gate = z.row<float>(piece.first + t) + head * layer.value_dim;
    rms_normalize(row, layer.norm.weight.data<float>(), layer.norm.eps, layer.value_dim, row);
    for (std::int64_t i = 0; i < layer.value_dim; ++i) row[i] = static_cast<float>(row[i] * silu(gate[i]));
  }
}

}  // namespace

void delta_net(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
               const DeltaNetState& state, const Batch& batch, const Tensor& out, ThreadPool& pool) {
  HostBuffer storage(static_cast<std::size_t>(batch.rows * layer.channels()) * sizeof(float));
  const Tensor conv{&storage, 0, DType::f32, batch.rows, layer.channels(), layer.channels()};
  pool.parallel_for(batch.rows, [&](std::int64_t r, int) {
    const Piece piece = piece_of(batch, state, batch.row_sequence.data<std::int32_t>()[r]);
    convolve_row(layer, qkv, piece, r - piece.first, conv.row<float>(r));
  });
  pool.parallel_for(batch.sequences,
                    [&](std::int64_t s, int) { update_window(layer, qkv, piece_of(batch, state, s)); });
  pool.parallel_for(batch.sequences * layer.value_heads, [&](std::int64_t i, int) {
    const Piece piece = piece_of(batch, state, i / layer.value_heads);
    run_head(layer, conv, z, b, a, piece, i % layer.value_heads, out);
  });
}

}  // namespace pergola::reference
