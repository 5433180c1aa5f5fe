#include "backend/cpu/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pergola::cpu {
namespace {

constexpr std::int64_t kPiece = 256;

/// g * sigmoid(a g) * (u + 1) = silu(a g) * (u + 1) / a, with the clamped values in pieces on the stack.
void clamped_swiglu(const FloatKernels& floats, const float* gate, const float* up, float* out, std::int64_t n) {
  float gates[kPiece], ups[kPiece];
  for (std::int64_t first = 0; first < n; first += kPiece) {
    const std::int64_t count = std::min(kPiece, n - first);
    for (std::int64_t i = 0; i < count; ++i) {
      gates[i] = kSwigluAlpha * std::min(gate[first + i], kSwigluLimit);
      ups[i] = (std::clamp(up[first + i], -kSwigluLimit, kSwigluLimit) + 1.0f) / kSwigluAlpha;
    }
    floats.silu_multiply(gates, ups, out + first, count);
  }
}

}  // namespace

float rms_factor(float sum_squares, std::int64_t width, float eps) {
  return 1.0f / std::sqrt(sum_squares / static_cast<float>(width) + eps);
}

void activate(const FloatKernels& floats, Activation activation, const float* gate, const float* up, float* out,
              std::int64_t n) {
  switch (activation) {
    case Activation::silu:
      return floats.silu_multiply(gate, up, out, n);
    case Activation::gelu_tanh:
      return floats.gelu_multiply(gate, up, out, n);
    case Activation::clamped_swiglu:
      return clamped_swiglu(floats, gate, up, out, n);
  }
}

void soft_cap(const FloatKernels& floats, float* x, float cap, std::int64_t n) {
  float angles[kPiece];
  for (std::int64_t first = 0; first < n; first += kPiece) {
    const std::int64_t count = std::min(kPiece, n - first);
    floats.scale(x + first, 2.0f / cap, angles, count);
    std::fill_n(x + first, count, 2.0f * cap);
    floats.sigmoid_multiply(x + first, angles, count);
    for (std::int64_t i = first; i < first + count; ++i) x[i] -= cap;
  }
}

void embed(const Context& context, const CpuEmbedding& embedding, const Tensor& ids, float scale, const Tensor& out) {
  const DenseView& table = embedding.table;
  const ElementKernels& elements = context.floats.of(table.dtype);
  const std::int64_t row_bytes = table.columns * static_cast<std::int64_t>(size_of(table.dtype));
  for_rows(context.pool, out.rows, out.columns, [&](std::int64_t row) {
    const std::int64_t id = ids.data<std::int32_t>()[row];
    elements.to_float(table.bytes.data() + id * row_bytes, out.row<float>(row), table.columns);
    if (scale != 1.0f) context.floats.scale(out.row<float>(row), scale, out.row<float>(row), table.columns);
  });
}

void rms_norm(const Context& context, const RmsNorm& norm, const Tensor& x, const Tensor& out) {
  for_rows(context.pool, x.rows, x.columns, [&](std::int64_t row) {
    const float* in = x.row<float>(row);
    const float factor = rms_factor(context.floats.sum_squares(in, x.columns), x.columns, norm.eps);
    context.floats.scale_weighted(in, norm.weight.data<float>(), factor, out.row<float>(row), x.columns);
  });
}

void add_rms_norm(const Context& context, const RmsNorm& norm, const Tensor& residual, const Tensor& delta,
                  const Tensor& out) {
  const std::int64_t width = residual.columns;
  for_rows(context.pool, residual.rows, width, [&](std::int64_t row) {
    float* sum = residual.row<float>(row);
    const float factor = rms_factor(context.floats.add_sum_squares(sum, delta.row<float>(row), width), width, norm.eps);
    context.floats.scale_weighted(sum, norm.weight.data<float>(), factor, out.row<float>(row), width);
  });
}

void gated_activation(const Context& context, Activation activation, const Tensor& gate, const Tensor& up,
                      const Tensor& out) {
  // The exponential costs about as much as reading four values.
  for_rows(context.pool, out.rows, 4 * out.columns, [&](std::int64_t row) {
    activate(context.floats, activation, gate.row<float>(row), up.row<float>(row), out.row<float>(row), out.columns);
  });
}

void soft_cap(const Context& context, const Tensor& x, float cap) {
  for_rows(context.pool, x.rows, 4 * x.columns,
           [&](std::int64_t row) { soft_cap(context.floats, x.row<float>(row), cap, x.columns); });
}

void gather_rows(const Context& context, const Tensor& x, const Tensor& indices, const Tensor& out) {
  for_rows(context.pool, out.rows, out.columns, [&](std::int64_t row) {
    std::memcpy(out.row<float>(row), x.row<float>(indices.data<std::int32_t>()[row]),
                static_cast<std::size_t>(out.columns) * sizeof(float));
  });
}

}  // namespace pergola::cpu
