#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/opencl/device.h"
#include "backend/opencl/regime.h"
#include "backend/opencl/weight_arenas.h"
#include "trellis/linear_view.h"

namespace pergola::opencl {

/// One matrix as kernels find it: matrix_t of kernels/trellis.h. `kind` is codebook * 8 + K - 1, or 24 + f32 0, f16 1,
/// bf16 2 for a dense one.
struct Matrix {
  std::uint64_t weights = 0;  ///< from the arena's start: words of a trellis, elements of a dense matrix
  std::uint64_t suh = 0;      ///< halves
  std::uint64_t svh = 0;
  std::uint64_t bias = ~std::uint64_t{0};  ///< floats; all ones: none
  std::uint32_t in = 0;
  std::uint32_t out = 0;
  std::uint32_t stored_in = 0;  ///< multiples of 128
  std::uint32_t stored_out = 0;
  std::uint32_t kind = 0;
  std::uint32_t arena = 0;
  std::uint32_t zero = 0;  ///< what kernels add where a compiler must not know it
  std::uint32_t reserved = 0;

  bool dense() const { return kind >= kDenseKind; }
  std::uint32_t blocks() const { return stored_out / 128; }

  static constexpr std::uint32_t kDenseKind = 24;
};
static_assert(sizeof(Matrix) == 64);

/// Bytes that a bound linear takes in an arena.
std::size_t device_bytes(const LinearView& view);

/// Matrices in device memory: their weights, and the table that describes them.
class BoundMatrices {
 public:
  BoundMatrices(Device& device, std::span<const LinearView* const> views, std::string_view what);

  const std::vector<Matrix>& matrices() const { return matrices_; }
  const WeightArenas& arenas() const { return arenas_; }
  cl_mem table() const { return table_.get(); }
  /// One bit a kind that occurs: the KINDS option of kernels.
  std::uint32_t kinds() const { return kinds_; }
  std::size_t bytes() const { return arenas_.bytes() + matrices_.size() * sizeof(Matrix); }

 private:
  std::vector<Matrix> matrices_;
  WeightArenas arenas_;
  Memory table_;
  std::uint32_t kinds_ = 0;
};

/// Build options of a kernel that multiplies such matrices; `wide` asks Intel's compiler for 256 registers a thread.
std::string matrix_options(const Device& device, std::uint32_t kinds, const Variant& variant, bool wide);

/// Bits of the kinds that are trellises.
inline constexpr std::uint32_t kTrellisKinds = (1u << Matrix::kDenseKind) - 1;

}  // namespace pergola::opencl
