#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/linear_kernels.h"
#include "base/progress.h"

namespace pergola {

/// One kernel run against double arithmetic.
struct KernelCheck {
  std::string isa;        ///< "scalar", "avx2", ...
  std::string precision;  ///< "standard", or "exact" or "int8" where that option changes the kernel
  std::string path;       ///< the kernel's own name
  std::string weight;     ///< "mul1", "mcg", "3inst", or "f32", "f16", "bf16" for dense weights
  int bits = 0;           ///< K; 0 for dense weights
  std::int64_t rows = 0;
  std::int64_t in_features = 0;  ///< logical widths: those of a padded trellis are no multiples of 128
  std::int64_t out_features = 0;
  double error = 0;  ///< relative RMS error of the whole output (docs/numerics.md)
  double tolerance = 0;
  double weights_per_second =
      0;  ///< of one thread with weights in cache: in * out over the time of one pass; 0 where too small to time
  bool passed = false;
};

struct KernelCheckOptions {
  Isa cap = Isa::amx;  ///< no instruction set wider than this
  bool timed = true;
  std::string weight;  ///< only this kind of weight; empty: all
  int bits = 0;        ///< only this K; 0: all
  /// Changes every table before it is used: tests plant faults with it.
  std::function<void(KernelTable&)> alter;
};

/// Runs every kernel that this processor can: instruction set x K x codebook x row counts of every regime x shapes
/// (whole blocks, padded widths, an odd number of chunks), and dense weights of every type. Nothing is printed; a
/// kernel beyond its tolerance has passed == false.
std::vector<KernelCheck> verify_linear_kernels(const KernelCheckOptions& options, const Progress& progress);

}  // namespace pergola
