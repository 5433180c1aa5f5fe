// AVX2 kernels of the activation forms and output transforms.

#include "backend/cpu/linear_kernels.h"

namespace pergola {

void add_avx2_kernels(KernelTable& table, const CpuFeatures&, Precision) {
  table.isa = Isa::avx2;
}

}  // namespace pergola
