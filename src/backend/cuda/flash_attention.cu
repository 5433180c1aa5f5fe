// Attention of many rows a sequence on tensor cores: a block takes 64 consecutive rows of one sequence and one head,
// and walks over the keys in steps of 64 with a running softmax. Keys and values come by asynchronous copies, one ahead
// of their use.
#include <cfloat>

#include "backend/cuda/attention.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

namespace {

constexpr int kRows = 64, kKeys = 64, kThreads = 128;

__device__ __forceinline__ void load_matrix4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void load_matrix4_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ std::uint32_t pack(float a, float b) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

template <int kDim>
struct FlashShape {
  static constexpr int kStride = kDim + 8;  ///< halves a row, padded against bank conflicts
  static constexpr int kTileBytes = 64 * kStride * 2;
  static constexpr int kSharedBytes = 3 * kTileBytes;  ///< queries, keys, values
};

template <int kDim>
__global__ void __launch_bounds__(kThreads, 2) flash_attend(const __grid_constant__ AttentionParams p) {
  using Shape = FlashShape<kDim>;
  constexpr int kStride = Shape::kStride, kChunks = kDim / 8;  // of 16 bytes a row
  extern __shared__ __align__(128) unsigned char memory[];
  allow_next_kernel();
  wait_for_previous_kernel();
  // The longest rows first: they take the longest.
  int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), sequence = 0, tiles = 0;
  for (; sequence < p.sequences; ++sequence) {
    tiles = (p.row_start[sequence + 1] - p.row_start[sequence] + kRows - 1) / kRows;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (sequence == p.sequences) return;
  const int first = p.row_start[sequence] + tile * kRows, rows = min(kRows, p.row_start[sequence + 1] - first);
  const int head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads);
  const int position = p.positions[first], keys = position + rows;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, q = lane & 3;
  const std::uint32_t queries = shared_address(memory), key_tile = queries + Shape::kTileBytes,
                      value_tile = key_tile + Shape::kTileBytes;

  const std::int64_t head_start = static_cast<std::int64_t>(head) * kDim * (p.gated != 0 ? 2 : 1);
  const auto load_queries = [&] {
    for (int i = thread; i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      async_copy16(
          queries + (row * kStride + chunk * 8) * 2,
          static_cast<const __half*>(p.q.data) + (first + min(row, rows - 1)) * p.q.stride + head_start + chunk * 8);
    }
  };
  const std::int32_t* pages = p.page_table + sequence * p.page_table_stride;
  const auto load_tile = [&](const __half* from, std::uint32_t to, int start) {
    for (int i = thread; i < kKeys * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks, at = min(start + row, keys - 1);
      const std::int64_t cache_row =
          static_cast<std::int64_t>(pages[at / p.page_size]) * p.page_size + at % p.page_size;
      async_copy16(to + (row * kStride + chunk * 8) * 2,
                   from + cache_row * p.cache_stride + static_cast<std::int64_t>(kv_head) * kDim + chunk * 8);
    }
  };
  load_queries();
  load_tile(p.keys, key_tile, 0);
  commit_copies();

  float out[kDim / 8][4], most[2] = {-FLT_MAX, -FLT_MAX}, total[2] = {};
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] = 0;
  }
  const float scale = p.scale * 1.4426950408889634f;  // exponents of two
  const int row0 = position + warp * 16 + g;  // the position of the lane's first row; the other is eight further
  // Lanes' addresses for ldmatrix: matrices of 8 x 8, four at once.
  const std::uint32_t query_at = queries + ((warp * 16 + (lane & 15)) * kStride + (lane >> 4) * 8) * 2;
  const std::uint32_t key_at = key_tile + (((lane & 7) + (lane >> 4) * 8) * kStride + ((lane >> 3) & 1) * 8) * 2;
  const std::uint32_t value_at = value_tile + ((lane & 15) * kStride + (lane >> 4) * 8) * 2;

  for (int start = 0; start < keys; start += kKeys) {
    wait_copies<0>();
    __syncthreads();  // keys are here, and nobody reads the values before
    load_tile(p.values, value_tile, start);
    commit_copies();
    float score[kKeys / 8][4];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      std::uint32_t a[4];
      load_matrix4(a, query_at + k * 32);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        std::uint32_t b[4];
        load_matrix4(b, key_at + (n * 16 * kStride + k * 16) * 2);
        mma_f16(score[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_f16(score[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
    // The running softmax; keys beyond a row's own position do not count.
    const bool is_last = start + kKeys > position + warp * 16;
    float largest[2] = {most[0], most[1]};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] *= scale;
        if (is_last && start + n * 8 + 2 * q + (i & 1) > row0 + 8 * (i >> 1)) score[n][i] = -FLT_MAX;
        largest[i >> 1] = fmaxf(largest[i >> 1], score[n][i]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], 1));
      largest[r] = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], 2));
      const float shrink = exp2f(most[r] - largest[r]);
      most[r] = largest[r];
      total[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        out[n][2 * r] *= shrink;
        out[n][2 * r + 1] *= shrink;
      }
    }
    std::uint32_t weight[kKeys / 16][4];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = exp2f(score[n][i] - most[i >> 1]);
        total[i >> 1] += score[n][i];
      }
      weight[n / 2][(n & 1) * 2] = pack(score[n][0], score[n][1]);
      weight[n / 2][(n & 1) * 2 + 1] = pack(score[n][2], score[n][3]);
    }
    wait_copies<0>();
    __syncthreads();  // values are here, and nobody reads the keys before
    if (start + kKeys < keys) load_tile(p.keys, key_tile, start + kKeys);
    commit_copies();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        std::uint32_t b[4];
        load_matrix4_transposed(b, value_at + (k * 16 * kStride + n * 16) * 2);
        mma_f16(out[2 * n], weight[k][0], weight[k][1], weight[k][2], weight[k][3], b[0], b[1]);
        mma_f16(out[2 * n + 1], weight[k][0], weight[k][1], weight[k][2], weight[k][3], b[2], b[3]);
      }
    }
  }
  wait_copies<0>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(~0u, total[r], 1);
    total[r] += __shfl_xor_sync(~0u, total[r], 2);
    const int row = warp * 16 + g + 8 * r;
    if (row >= rows) continue;
    const float inverse = 1.0f / total[r];
    const std::int64_t at = (first + row) * p.out.stride + static_cast<std::int64_t>(head) * kDim;
    const __half* gates = static_cast<const __half*>(p.q.data) + (first + row) * p.q.stride + head_start + kDim;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      float a = out[n][2 * r] * inverse, b = out[n][2 * r + 1] * inverse;
      const int column = n * 8 + 2 * q;
      if (p.gated != 0) {
        const float2 gate = __half22float2(*reinterpret_cast<const __half2*>(gates + column));
        a /= 1.0f + __expf(-gate.x);
        b /= 1.0f + __expf(-gate.y);
      }
      if (p.out.f32 != 0) {
        static_cast<float*>(p.out.data)[at + column] = a;
        static_cast<float*>(p.out.data)[at + column + 1] = b;
      } else {
        *reinterpret_cast<__half2*>(static_cast<__half*>(p.out.data) + at + column) = __floats2half2_rn(a, b);
      }
    }
  }
}

template <int kDim>
void launch_dim(const LaunchContext& context, const AttentionParams& p) {
  const dim3 grid(static_cast<unsigned>((p.rows + kRows - 1) / kRows + p.sequences), static_cast<unsigned>(p.heads));
  launch(context, flash_attend<kDim>, grid, kThreads, FlashShape<kDim>::kSharedBytes, p);
}

bool is_aligned(const void* pointer, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool flash_attention_fits(const LaunchContext& context, const AttentionParams& p) {
  const int bytes = p.head_dim == 64    ? FlashShape<64>::kSharedBytes
                    : p.head_dim == 128 ? FlashShape<128>::kSharedBytes
                    : p.head_dim == 256 ? FlashShape<256>::kSharedBytes
                                        : 1 << 30;
  return p.q.f32 == 0 && bytes <= context.shared_bytes && is_aligned(p.q.data, p.q.stride) &&
         is_aligned(p.keys, p.cache_stride) && is_aligned(p.values, p.cache_stride) && p.out.stride % 2 == 0;
}

void launch_flash_attention(const LaunchContext& context, const AttentionParams& p) {
  if (p.head_dim == 64) return launch_dim<64>(context, p);
  if (p.head_dim == 128) return launch_dim<128>(context, p);
  launch_dim<256>(context, p);
}

}  // namespace pergola::cuda
