#include "backend/cpu/avx2_kernels.h"

namespace pergola {

void add_avx2_kernels(KernelTable& table, const CpuFeatures& features, Precision) {
  table.isa = Isa::avx2;
  table.finish = avx2::finish_block;
  avx2::add_dense_kernels(table);
  if (features.avx_vnni) {
    avx2::add_int_kernels_vnni(table);
  } else {
    avx2::add_int_kernels(table);
  }
  avx2::add_float_kernels(table);
}

}  // namespace pergola
