#include "backend/cpu/delta_net.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/memory.h"

namespace pergola::cpu {
namespace {

constexpr std::int64_t kChunk = 64;  ///< rows handled at a time
constexpr int kMaxKernel = 16;       ///< taps of a convolution
constexpr float kL2Epsilon = 1e-6f;

struct MemberWork {
  float* q;        ///< [kChunk, key_dim]
  float* k;        ///< [kChunk, key_dim]
  float* v;        ///< [kChunk, value_dim]
  float* alpha;    ///< [kChunk]
  float* beta;     ///< [kChunk]
  float* k_dot_q;  ///< [kChunk]

  static MemberWork carve(const DeltaNet& layer, Carver& carver) {
    return {carver.take<float>(kChunk * layer.key_dim),
            carver.take<float>(kChunk * layer.key_dim),
            carver.take<float>(kChunk * layer.value_dim),
            carver.take<float>(kChunk),
            carver.take<float>(kChunk),
            carver.take<float>(kChunk)};
  }
};

/// The rows of one sequence in this step, and its slot.
struct Piece {
  std::int64_t first;
  std::int64_t rows;
  float* window;  ///< [kernel - 1, channels], oldest first
  float* state;   ///< [value_heads, key_dim, value_dim]
};

class DeltaNetStep {
 public:
  DeltaNetStep(const Context& context, const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b,
               const Tensor& a, const DeltaNetState& state, const Batch& batch, const Tensor& out)
      : context_(context),
        floats_(context.floats),
        layer_(layer),
        qkv_(qkv),
        z_(z),
        b_(b),
        a_(a),
        state_(state),
        batch_(batch),
        out_(out) {}

  void run() {
    const std::int64_t items = batch_.sequences * layer_.key_heads;
    const std::int64_t group = layer_.value_heads / layer_.key_heads;
    if (items >= 2 * context_.pool.size() || group == 1) {
      context_.pool.parallel_for(items, [&](std::int64_t item, int member) {
        const Piece piece = piece_of(item / layer_.key_heads);
        const std::int64_t key_head = item % layer_.key_heads;
        run_heads(piece, key_head, key_head * group, group, member);
        keep_inputs(piece, key_head);
      });
      return;
    }
    // Value heads of a key head are spread too. They share the window of the key head's channels, so it is updated
    // after all of them.
    context_.pool.parallel_for(items * group, [&](std::int64_t item, int member) {
      const std::int64_t head = item % layer_.value_heads;
      run_heads(piece_of(item / layer_.value_heads), head / group, head, 1, member);
    });
    context_.pool.parallel_for(items, [&](std::int64_t item, int) {
      keep_inputs(piece_of(item / layer_.key_heads), item % layer_.key_heads);
    });
  }

 private:
  Piece piece_of(std::int64_t sequence) const {
    const std::int32_t* start = batch_.row_start.data<std::int32_t>();
    const std::int64_t slot = batch_.slots.data<std::int32_t>()[sequence];
    return {start[sequence], start[sequence + 1] - start[sequence], state_.window.row<float>(slot),
            state_.state.row<float>(slot)};
  }

  std::int64_t key_channel(std::int64_t key_head) const {
    return (std::int64_t{layer_.key_heads} + key_head) * layer_.key_dim;
  }
  std::int64_t value_channel(std::int64_t head) const {
    return 2 * std::int64_t{layer_.key_heads} * layer_.key_dim + head * layer_.value_dim;
  }

  void run_heads(const Piece& piece, std::int64_t key_head, std::int64_t first_head, std::int64_t heads,
                 int member) const {
    Carver carver(context_.work.of_thread(member));
    const MemberWork work = MemberWork::carve(layer_, carver);
    for (std::int64_t row = 0; row < piece.rows; row += kChunk) {
      const std::int64_t rows = std::min(kChunk, piece.rows - row);
      prepare_keys(piece, key_head, row, rows, work);
      for (std::int64_t head = first_head; head < first_head + heads; ++head) run_chunk(piece, head, row, rows, work);
    }
  }

  /// The convolution of channels [channel, channel + width) for rows [row, row + rows) of the piece.
  void convolve(const Piece& piece, std::int64_t row, std::int64_t rows, std::int64_t channel, std::int64_t width,
                float* out) const {
    const float* inputs[kMaxKernel];
    for (std::int64_t t = 0; t < rows; ++t) {
      for (int tap = 0; tap < layer_.kernel; ++tap)
        inputs[tap] = input(piece, row + t - (layer_.kernel - 1 - tap)) + channel;
      floats_.convolve_silu(inputs, layer_.conv_weight.row<float>(channel), layer_.kernel, out + t * width, width);
    }
  }

  /// All channels of row t of the piece, which lies in the window if t < 0.
  const float* input(const Piece& piece, std::int64_t t) const {
    if (t >= 0) return qkv_.row<float>(piece.first + t);
    return piece.window + (layer_.kernel - 1 + t) * layer_.channels();
  }

  void prepare_keys(const Piece& piece, std::int64_t key_head, std::int64_t row, std::int64_t rows,
                    const MemberWork& work) const {
    const std::int64_t dim = layer_.key_dim;
    convolve(piece, row, rows, key_head * dim, dim, work.q);
    convolve(piece, row, rows, key_channel(key_head), dim, work.k);
    const float query_factor = 1.0f / std::sqrt(static_cast<float>(dim));
    for (std::int64_t t = 0; t < rows; ++t) {
      float* q = work.q + t * dim;
      float* k = work.k + t * dim;
      floats_.scale(q, query_factor / std::sqrt(floats_.sum_squares(q, dim) + kL2Epsilon), q, dim);
      floats_.scale(k, 1.0f / std::sqrt(floats_.sum_squares(k, dim) + kL2Epsilon), k, dim);
      floats_.f32.dot(work.k_dot_q + t, 1, k, dim, q, dim, 1, 1, dim);
    }
  }

  void prepare_gates(const Piece& piece, std::int64_t head, std::int64_t row, std::int64_t rows,
                     const MemberWork& work) const {
    const float rate = -std::exp(layer_.a_log.data<float>()[head]);
    const float bias = layer_.dt_bias.data<float>()[head];
    for (std::int64_t t = 0; t < rows; ++t) {
      const float x = a_.row<float>(piece.first + row + t)[head] + bias;
      const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
      work.alpha[t] = std::exp(rate * softplus);
      work.beta[t] = 1.0f / (1.0f + std::exp(-b_.row<float>(piece.first + row + t)[head]));
    }
  }

  /// One value head over rows [row, row + rows) of the piece.
  void run_chunk(const Piece& piece, std::int64_t head, std::int64_t row, std::int64_t rows,
                 const MemberWork& work) const {
    const std::int64_t dim = layer_.value_dim;
    convolve(piece, row, rows, value_channel(head), dim, work.v);
    prepare_gates(piece, head, row, rows, work);
    float* result = out_.row<float>(piece.first + row) + head * dim;
    floats_.delta_rule(piece.state + head * layer_.key_dim * dim, layer_.key_dim, dim, rows, work.k, layer_.key_dim,
                       work.q, layer_.key_dim, work.v, dim, work.alpha, work.beta, work.k_dot_q, result, out_.stride);
    for (std::int64_t t = 0; t < rows; ++t) {
      float* o = result + t * out_.stride;
      const float factor = rms_factor(floats_.sum_squares(o, dim), dim, layer_.norm.eps);
      floats_.scale_weighted_silu(o, layer_.norm.weight.data<float>(), factor,
                                  z_.row<float>(piece.first + row + t) + head * dim, o, dim);
    }
  }

  /// Keeps the last kernel - 1 inputs of the channels of a key head and its value heads.
  void keep_inputs(const Piece& piece, std::int64_t key_head) const {
    const std::int64_t group = layer_.value_heads / layer_.key_heads;
    for (std::int64_t i = 0; i < layer_.kernel - 1; ++i) {  // oldest first: an entry is read before it is overwritten
      const float* from = input(piece, piece.rows - (layer_.kernel - 1) + i);
      float* to = piece.window + i * layer_.channels();
      std::copy_n(from + key_head * layer_.key_dim, layer_.key_dim, to + key_head * layer_.key_dim);
      std::copy_n(from + key_channel(key_head), layer_.key_dim, to + key_channel(key_head));
      const std::int64_t values = value_channel(key_head * group);
      std::copy_n(from + values, group * layer_.value_dim, to + values);
    }
  }

  const Context& context_;
  const FloatKernels& floats_;
  const DeltaNet& layer_;
  const Tensor& qkv_;
  const Tensor& z_;
  const Tensor& b_;
  const Tensor& a_;
  const DeltaNetState& state_;
  const Batch& batch_;
  const Tensor& out_;
};

}  // namespace

WorkNeeds delta_net_needs(const DeltaNet& layer) {
  Carver member;
  MemberWork::carve(layer, member);
  return {0, member.used()};
}

void delta_net(const Context& context, const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b,
               const Tensor& a, const DeltaNetState& state, const Batch& batch, const Tensor& out) {
  assert(layer.kernel >= 1 && layer.kernel <= kMaxKernel);
  DeltaNetStep(context, layer, qkv, z, b, a, state, batch, out).run();
}

}  // namespace pergola::cpu
