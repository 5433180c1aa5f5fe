#include <algorithm>

#include "backend/cpu/linear_kernels.h"

namespace pergola {

KernelTable make_kernel_table(const CpuFeatures& features, Isa cap, [[maybe_unused]] Precision precision) {
  [[maybe_unused]] const Isa isa = std::min(features.best, cap);
  KernelTable table;
  add_scalar_kernels(table);
#if defined(__x86_64__)
  if (isa >= Isa::avx2) add_avx2_kernels(table, features, precision);
#endif
  return table;
}

}  // namespace pergola
