#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/precision.h"
#include "base/cpu_features.h"
#include "base/dtype.h"
#include "base/half.h"
#include "trellis/codebook.h"

// The kernels under every linear of the CPU backend: plain functions on memory, one table of them for what the
// processor has. A product of a repacked trellis (packed_matrix.h) with some rows takes three steps:
//
//   form     per row, once per input and suh: x * suh, Hadamard transform, conversion to what the kernel reads
//   (ActivationForm) multiply per block of 128 columns: z = form * inner weight, fp32 (TrellisKernel) finish   per row
//   and block: Hadamard transform of z, * svh, + bias (FinishBlock)
//
// Every function may be called by many threads at once on different rows or blocks; none allocates. A row's result
// depends on nothing but the row, the matrix and the kernel: not on the other rows, the thread count or the block's
// neighbours.

namespace pergola {

/// How many rows share one pass over the weights.
enum class Regime : std::uint8_t {
  one,   ///< a single row: decode and multiply in registers
  few,   ///< some rows share each decoded weight
  many,  ///< blocks of weights are decoded once, then multiplied like a dense matrix
};
inline constexpr int kRegimes = 3;

/// From how many rows a regime is used. `few` also serves single rows where a table has no better kernel.
struct RowLimits {
  std::int64_t few = 2;
  std::int64_t many = 24;
};

/// The regime for a row count: a pure function of the two.
constexpr Regime choose_regime(const RowLimits& limits, std::int64_t rows) {
  return rows >= limits.many ? Regime::many : rows >= limits.few ? Regime::few : Regime::one;
}

/// The form in which a kernel reads its input rows: opaque bytes, 64-byte aligned.
struct ActivationForm {
  const char* name;  ///< e.g. "int16 per 128"

  /// Bytes of `rows` rows. `in_features` is the stored width, a multiple of 128.
  std::int64_t (*bytes)(std::int64_t in_features, std::int64_t rows);

  /// Writes row `row` of `rows` to `form`. x has `count` <= in_features values, the rest counts as zeros; suh has
  /// in_features values. `form` may be used for rows prepared by different threads.
  void (*prepare)(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                  std::int64_t rows, std::byte* form);
};

/// One way to multiply one block of 128 columns of a repacked trellis of a certain K and codebook.
struct TrellisKernel {
  const char* path;  ///< for listings, e.g. "avx2 int16"
  const ActivationForm* form;

  /// Relative RMS error of z that tests allow, against double (docs/numerics.md, "CPU linears").
  double tolerance;

  /// Scratch of one thread for one call, 64-byte aligned; 0 where none is needed.
  std::int64_t (*scratch_bytes)(std::int64_t in_features, std::int64_t rows);

  /// z[row * 128 + column] = sum over inputs, for `rows` rows. `block` is PackedMatrix::block(i); memory behind it may
  /// be prefetched but is not read.
  void (*multiply)(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows, float* z,
                   std::byte* scratch);
};

/// out[0..count) = (Hadamard(z[0..128)) * svh + bias)[0..count); count <= 128, bias may be null. z may be overwritten.
/// `out` may be unaligned and must not overlap z.
using FinishBlock = void (*)(float* z, const Half* svh, const float* bias, std::int64_t count, float* out);

/// out[r * out_stride + j] = sum_i x[r * x_stride + i] * w[j][i], j < columns; w row-major as stored (f32, f16 or bf16;
/// element aligned) with `in_features` elements a row, converted on the fly.
using DenseMultiply = void (*)(const std::byte* w, std::int64_t in_features, std::int64_t columns, const float* x,
                               std::int64_t x_stride, std::int64_t rows, float* out, std::int64_t out_stride);

inline constexpr int kCodebooks = 3;
inline constexpr int kBitWidths = 8;

/// Everything that linears call, for one processor and precision. Made once per backend.
struct KernelTable {
  Isa isa = Isa::scalar;
  TrellisKernel trellis[kCodebooks][kBitWidths][kRegimes];
  RowLimits limits[kCodebooks];
  FinishBlock finish;
  DenseMultiply dense_f32;
  DenseMultiply dense_f16;
  DenseMultiply dense_bf16;

  TrellisKernel& entry(Codebook codebook, int bits, Regime regime) {
    return trellis[static_cast<int>(codebook)][bits - 1][static_cast<int>(regime)];
  }
  const TrellisKernel& kernel(Codebook codebook, int bits, Regime regime) const {
    return trellis[static_cast<int>(codebook)][bits - 1][static_cast<int>(regime)];
  }
  /// The kernel for a row count.
  const TrellisKernel& kernel_for_rows(Codebook codebook, int bits, std::int64_t rows) const {
    return kernel(codebook, bits, choose_regime(limits[static_cast<int>(codebook)], rows));
  }
  DenseMultiply dense(DType type) const {
    return type == DType::f32 ? dense_f32 : type == DType::f16 ? dense_f16 : dense_bf16;
  }
};

/// The best kernels of `features`, no wider than `cap`.
KernelTable make_kernel_table(const CpuFeatures& features, Isa cap, Precision precision);

// Each instruction set overwrites the entries that it does better. The functions below live in files compiled for that
// set and are called only where the processor has it.
void add_scalar_kernels(KernelTable& table);
void add_avx2_kernels(KernelTable& table, const CpuFeatures& features, Precision precision);
void add_avx512_kernels(KernelTable& table, Precision precision);
void add_avx512fp16_kernels(KernelTable& table, Precision precision);
void add_amx_kernels(KernelTable& table, Precision precision);

}  // namespace pergola
