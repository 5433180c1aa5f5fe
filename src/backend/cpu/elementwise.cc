#include "backend/cpu/elementwise.h"

#include <cmath>
#include <cstring>

namespace pergola::cpu {

float rms_factor(float sum_squares, std::int64_t width, float eps) {
  return 1.0f / std::sqrt(sum_squares / static_cast<float>(width) + eps);
}

void activate(const FloatKernels& floats, Activation activation, const float* gate, const float* up, float* out,
              std::int64_t n) {
  if (activation == Activation::silu) {
    floats.silu_multiply(gate, up, out, n);
  } else {
    floats.gelu_multiply(gate, up, out, n);
  }
}

void embed(const Context& context, const CpuEmbedding& embedding, const Tensor& ids, const Tensor& out) {
  const DenseView& table = embedding.table;
  const ElementKernels& elements = context.floats.of(table.dtype);
  const std::int64_t row_bytes = table.columns * static_cast<std::int64_t>(size_of(table.dtype));
  for_rows(context.pool, out.rows, out.columns, [&](std::int64_t row) {
    const std::int64_t id = ids.data<std::int32_t>()[row];
    elements.to_float(table.bytes.data() + id * row_bytes, out.row<float>(row), table.columns);
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

void gather_rows(const Context& context, const Tensor& x, const Tensor& indices, const Tensor& out) {
  for_rows(context.pool, out.rows, out.columns, [&](std::int64_t row) {
    std::memcpy(out.row<float>(row), x.row<float>(indices.data<std::int32_t>()[row]),
                static_cast<std::size_t>(out.columns) * sizeof(float));
  });
}

}  // namespace pergola::cpu
