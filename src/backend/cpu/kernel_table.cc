#include <algorithm>

#include "backend/cpu/linear_kernels.h"

namespace pergola {

KernelTable make_kernel_table(const CpuFeatures& features, Isa cap, [[maybe_unused]] Precision precision) {
  [[maybe_unused]] const Isa isa = std::min(features.best, cap);
  KernelTable table;
  add_scalar_kernels(table);
#if defined(__x86_64__)
  if (isa >= Isa::avx2) add_avx2_kernels(table, features, precision);
  if (isa >= Isa::avx512) add_avx512_kernels(table, precision);
  if (isa >= Isa::avx512 && features.avx512_fp16) add_avx512fp16_kernels(table, precision);
  if (isa >= Isa::amx) add_amx_kernels(table, precision);
#endif
  return table;
}

}  // namespace pergola
