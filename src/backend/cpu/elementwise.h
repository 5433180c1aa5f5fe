#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace pergola::cpu {

/// An embedding table as it is stored: rows are converted when they are looked up.
class CpuEmbedding final : public Embedding {
 public:
  explicit CpuEmbedding(const DenseView& view) : table(view) {}
  std::size_t bytes() const override { return table.bytes.size(); }

  DenseView table;
};

// The operations of backend.h that work row by row. All tensors are f32.

void embed(const Context& context, const CpuEmbedding& embedding, const Tensor& ids, float scale, const Tensor& out);
void rms_norm(const Context& context, const RmsNorm& norm, const Tensor& x, const Tensor& out);
void add_rms_norm(const Context& context, const RmsNorm& norm, const Tensor& residual, const Tensor& delta,
                  const Tensor& out);
void gated_activation(const Context& context, Activation activation, const Tensor& gate, const Tensor& up,
                      const Tensor& out);
void soft_cap(const Context& context, const Tensor& x, float cap);
void gather_rows(const Context& context, const Tensor& x, const Tensor& indices, const Tensor& out);

/// x = cap * tanh(x / cap) over n values, as cap * (2 sigmoid(2 x / cap) - 1).
void soft_cap(const FloatKernels& floats, float* x, float cap, std::int64_t n);

/// The factor of an RMS norm over `width` values whose squares sum to `sum_squares`.
float rms_factor(float sum_squares, std::int64_t width, float eps);

/// out = the activation of gate and up over n values; out may be gate or up.
void activate(const FloatKernels& floats, Activation activation, const float* gate, const float* up, float* out,
              std::int64_t n);

}  // namespace pergola::cpu
