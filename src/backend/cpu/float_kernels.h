#pragma once

#include <cassert>
#include <cstdint>

#include "base/dtype.h"

namespace pergola {

/// Loops over memory whose elements have one type: f32, f16 or bf16. Memory may start at any alignment.
struct ElementKernels {
  void (*to_float)(const void* in, float* out, std::int64_t n);

  /// Nearest even. In f16 what is beyond +-65504 becomes +-65504, so that a large value stays finite.
  void (*from_float)(const float* in, void* out, std::int64_t n);

  /// c [m, n] (+)= a [m, k] b [k, n]; element (i, j) of a is a[i * a_row + j * a_column]. `accumulate` adds to c. Every
  /// element of c is one chain of additions over k.
  void (*multiply)(float* c, std::int64_t ldc, const float* a, std::int64_t a_row, std::int64_t a_column, const void* b,
                   std::int64_t ldb, std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate);

  /// c [m, n] = a [m, k] b^T with b [n, k]: dot products of rows.
  void (*dot)(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const void* b, std::int64_t ldb,
              std::int64_t m, std::int64_t n, std::int64_t k);
};

/// fp32 loops over short vectors and small matrices, compiled once an instruction set from one text
/// (float_kernels_body.h). Lengths are elements and may be anything, pointers need no alignment beyond their type's,
/// matrices are row-major with `ld` elements between rows. A result depends on the arguments and the instruction set
/// alone. The functions neither allocate nor throw. docs/numerics.md has their errors.
struct FloatKernels {
  const char* name;  ///< "portable", "avx2", "avx512"

  ElementKernels f32;
  ElementKernels f16;
  ElementKernels bf16;

  const ElementKernels& of(DType type) const {
    assert(is_float_weight(type));
    return type == DType::f32 ? f32 : type == DType::f16 ? f16 : bf16;
  }

  float (*sum_squares)(const float* x, std::int64_t n);
  /// x += delta; returns the sum of squares of the new x.
  float (*add_sum_squares)(float* x, const float* delta, std::int64_t n);
  /// out = x * factor * weight
  void (*scale_weighted)(const float* x, const float* weight, float factor, float* out, std::int64_t n);
  /// out = x * factor * weight * silu(z)
  void (*scale_weighted_silu)(const float* x, const float* weight, float factor, const float* z, float* out,
                              std::int64_t n);
  /// out = x * factor
  void (*scale)(const float* x, float factor, float* out, std::int64_t n);
  /// y += x * factor
  void (*add_scaled)(float* y, const float* x, float factor, std::int64_t n);
  /// out = silu(gate) * up
  void (*silu_multiply)(const float* gate, const float* up, float* out, std::int64_t n);
  /// out = gelu_tanh(gate) * up
  void (*gelu_multiply)(const float* gate, const float* up, float* out, std::int64_t n);
  /// x *= sigmoid(gate)
  void (*sigmoid_multiply)(float* x, const float* gate, std::int64_t n);
  float (*max_value)(const float* x, std::int64_t n);  ///< n >= 1
  /// x = exp(x - offset); returns the sum.
  float (*exp_sum)(float* x, float offset, std::int64_t n);
  /// Rotates pairs (x[j], x[j + pairs]) by the angles whose cosines and sines are given.
  void (*rotate_halves)(float* x, const float* cosine, const float* sine, std::int64_t pairs);

  /// out [columns, rows] = in [rows, columns]^T
  void (*transpose)(const float* in, std::int64_t ld_in, float* out, std::int64_t ld_out, std::int64_t rows,
                    std::int64_t columns);

  /// out[c] = silu(sum over j of taps[c * kernel + j] * inputs[j][c]), the sum in order of j.
  void (*convolve_silu)(const float* const* inputs, const float* taps, std::int64_t kernel, float* out,
                        std::int64_t channels);

  /// The gated delta rule for `rows` consecutive tokens of one head, one after the other; the state s [key_dim,
  /// value_dim] (packed) is updated:
  ///   d = beta (v - alpha s^T k),  s <- alpha s + k d^T,  out = s^T q.
  /// k and q [rows, key_dim], v and out [rows, value_dim]; alpha, beta and k_dot_q (the products k.q) [rows].
  void (*delta_rule)(float* s, std::int64_t key_dim, std::int64_t value_dim, std::int64_t rows, const float* k,
                     std::int64_t ldk, const float* q, std::int64_t ldq, const float* v, std::int64_t ldv,
                     const float* alpha, const float* beta, const float* k_dot_q, float* out, std::int64_t ldo);
};

const FloatKernels& portable_float_kernels();
#if defined(__x86_64__)
const FloatKernels& avx2_float_kernels();    ///< needs AVX2, FMA and F16C
const FloatKernels& avx512_float_kernels();  ///< needs AVX-512 F, BW, VL and DQ
#endif

}  // namespace pergola
