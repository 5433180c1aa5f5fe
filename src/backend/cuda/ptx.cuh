// Thin names for the PTX that the kernels use, with the pre-Hopper fallbacks. sm_80 and newer.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace pergola::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kHasBulkCopy = true;
#else
inline constexpr bool kHasBulkCopy = false;
#endif

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ std::uint32_t funnel_shift_right(std::uint32_t low, std::uint32_t high, int shift) {
  std::uint32_t result;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(shift));
  return result;
}

/// Four bytes picked from {a, b} by the nibbles of `selector`.
__device__ __forceinline__ std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
  return result;
}

/// low16(a) * byte0(b) + high16(a) * byte1(b): a mask of 16 bits on the multiplier's pipe when b is 0x0001 or 0x0100.
__device__ __forceinline__ std::uint32_t dot2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(0));
  return result;
}

__device__ __forceinline__ std::uint32_t dot4(std::uint32_t a, std::uint32_t b, std::uint32_t start) {
  std::uint32_t result;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(start));
  return result;
}

__device__ __forceinline__ uint4 load_shared(std::uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}

/// D += A B with A 16x16 and B 16x8 of binary16.
__device__ __forceinline__ void mma_f16(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                        std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// D += A B with A 16x32 unsigned bytes and B 32x8 signed bytes.
__device__ __forceinline__ void mma_u8s8(int (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                         std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// --- programmatic dependent launch: a kernel may start while the one before it still runs
// -----------------------------------------------------

/// Lets the next kernel of the stream start. What it reads of ours is guarded by its own wait.
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until every earlier kernel of the stream has finished. Every kernel calls it before it reads or writes
/// anything that another one touches.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// --- mbarriers and bulk copies
// ----------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done; again_%=: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; @!done bra again_%=; }" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
#else
  asm volatile(
      "{ .reg .pred done; again_%=: mbarrier.test_wait.parity.shared.b64 done, [%0], %1; @!done bra again_%=; }" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
#endif
}

/// Announces the bytes that bulk copies will bring, and arrives once.
__device__ __forceinline__ void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}

/// Copies `bytes` (a multiple of 16) from global to shared memory; completes on `barrier`.
__device__ __forceinline__ void bulk_copy(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
#endif
}

/// The same for what is read once a step: it is the first to leave the L2 cache, so that instructions and activations,
/// which every layer needs again, stay there.
__device__ __forceinline__ void bulk_copy_once(std::uint32_t to, const void* from, std::uint32_t bytes,
                                               std::uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], policy; "
      "}" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
#endif
}

/// Brings `bytes` (a multiple of 16) of global memory into the L2 cache.
__device__ __forceinline__ void prefetch_to_l2(const void* from, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

__device__ __forceinline__ void async_copy16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/// The barrier gets one arrival of this thread when its earlier async_copy16 are done. The arrival counts among those
/// that the barrier was initialised with.
__device__ __forceinline__ void async_copies_arrive(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/// A barrier of the first `threads` threads of a block.
template <int kThreads>
__device__ __forceinline__ void sync_threads(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

}  // namespace pergola::cuda
