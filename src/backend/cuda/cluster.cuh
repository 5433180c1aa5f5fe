// Thread-block clusters and distributed shared memory (compute capability 9.0 on; nothing before).
#pragma once

#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

__device__ __forceinline__ int cluster_rank() {
  int rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

__device__ __forceinline__ int cluster_size() {
  int size = 1;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  return size;
}

/// The two halves of a barrier over all threads of a cluster. What was written before the arrival is seen after the
/// wait.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// The address, in the cluster's shared memory, of what lies at `address` in block `rank`.
__device__ __forceinline__ std::uint32_t shared_of_rank(std::uint32_t address, int rank) {
  std::uint32_t result = address;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
#endif
  return result;
}

/// Stores 16 bytes in another block's shared memory and counts them on its barrier. Both addresses from shared_of_rank.
__device__ __forceinline__ void store_to_rank(std::uint32_t to, const float (&v)[4], std::uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
               : "memory");
#endif
}

}  // namespace pergola::cuda
