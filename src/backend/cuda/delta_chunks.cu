// The gated delta rule over a prompt, 64 tokens at a time, on tensor cores. With G the running sum of a chunk's log
// decays and S the state before it, the changes d of a chunk solve (I + A) d = beta (v - exp(G) S^T k), A[t, j] =
// beta[t] exp(G[t] - G[j]) k[t].k[j] below the diagonal. So d = U - W S with (I + A) [U W] = beta [v, exp(G) k], which
// does not need the state: `solve` does it for all chunks at once, `scan` then walks over a sequence's chunks:
//   out = exp(G) q S + P d with P[t, j] = exp(G[t] - G[j]) q[t].k[j],   S <- exp(G_last) S + sum exp(G_last - G) k d^T.
// (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024.) Operands are binary16, sums and the state fp32.
#include "backend/cuda/delta_net.h"
#include "backend/cuda/delta_net_kernels.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_fragments.cuh"

namespace pergola::cuda {

namespace {

constexpr int kChunk = kDeltaChunk, kDim = kDeltaChunkDim, kThreads = 256;
constexpr int kRow = kDim + 8;  ///< halves of a row of keys in shared memory: the padding avoids bank conflicts
constexpr int kSlice = 32;      ///< value columns of a thread block of `scan`
constexpr int kSliceRow = kSlice + 8;
constexpr int kPairRow = kChunk + 8;  ///< of the matrix P

/// Where the parts of the work space are, all of [rows, ...] but P.
struct ChunkWork {
  __half* mixed;  ///< [rows, channels]: q, k, v after convolution and norms
  float* decay;   ///< [rows, value_heads] log decays; from `solve` on their sums since the chunk's start
  float* beta;    ///< [rows, value_heads]
  __half* w;      ///< [rows, value_heads, 128]
  __half* u;      ///< the same
  __half* pairs;  ///< [chunk slots, value_heads, 64, 64]
  float* result;  ///< [rows, value_heads, 128]
};

__device__ __forceinline__ ChunkWork chunk_work(const DeltaNetParams& p) {
  const std::int64_t rows = p.rows, values = std::int64_t{p.value_heads} * kDim;
  ChunkWork work;
  work.result = p.mixed;
  work.decay = work.result + rows * values;
  work.beta = work.decay + rows * p.value_heads;
  // Multiples of 16 bytes: the dimensions are.
  work.mixed = reinterpret_cast<__half*>(p.mixed + aligned_floats(rows * (values + 2 * p.value_heads)));
  work.w = work.mixed + rows * p.channels;
  work.u = work.w + rows * values;
  work.pairs = work.u + rows * values;
  return work;
}

// --- convolution, SiLU, norms, gates

constexpr int kConvRows = 16;

/// A warp a head and sixteen rows, four channels a lane; the taps' inputs stay in registers.
__global__ void __launch_bounds__(128) convolve_rows(const __grid_constant__ DeltaNetParams p) {
  allow_next_kernel();
  const int head = static_cast<int>(blockIdx.x * 4 + (threadIdx.x >> 5)), lane = threadIdx.x & 31,
            from = blockIdx.y * kConvRows, end = min(p.rows, from + kConvRows);
  if (head >= 2 * p.key_heads + p.value_heads) return;
  const int channel = head * kDim + lane * 4;  // keys and values are equally wide
  float4 taps[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    taps[i] = __ldg(reinterpret_cast<const float4*>(p.conv_weight) + channel + i);  // of channel + i
  wait_for_previous_kernel();
  const ChunkWork work = chunk_work(p);
  const float* qkv = static_cast<const float*>(p.qkv.data) + channel;
  const bool is_key = head < 2 * p.key_heads;
  const float extra = head < p.key_heads ? rsqrtf(static_cast<float>(kDim)) : 1.0f;
  if (!is_key && from + lane < end) {
    const int h = head - 2 * p.key_heads;
    const std::int64_t row = from + lane, at = row * p.value_heads + h;
    const float x = element(p.a, row, h) + p.dt_bias[h], softplus = x > 20.0f ? x : log1pf(expf(x));
    work.decay[at] = -expf(p.a_log[h]) * softplus;
    work.beta[at] = 1.0f / (1.0f + expf(-element(p.b, row, h)));
  }
  float4 old[3];  // inputs one, two, three tokens before
  int sequence = -1;
  for (int row = from; row < end; row += 4) {
    float4 now[4];
    int owner[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i >= end) continue;
      now[i] = *reinterpret_cast<const float4*>(qkv + (row + i) * p.qkv.stride);
      owner[i] = p.row_sequence[row + i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i >= end) break;
      if (owner[i] != sequence) {
        sequence = owner[i];
        const int first = p.row_start[sequence], t = row + i - first;
        const float* window = p.window + p.slots[sequence] * p.window_stride + channel;
#pragma unroll
        for (int back = 1; back <= 3; ++back)
          old[back - 1] = *reinterpret_cast<const float4*>(
              back <= t ? qkv + (row + i - back) * p.qkv.stride
                        : window + static_cast<std::int64_t>(3 + t - back) * p.channels);
      }
      const float4 x0 = old[2], x1 = old[1], x2 = old[0], x3 = now[i];
      float y[4] = {taps[0].x * x0.x + taps[0].y * x1.x + taps[0].z * x2.x + taps[0].w * x3.x,
                    taps[1].x * x0.y + taps[1].y * x1.y + taps[1].z * x2.y + taps[1].w * x3.y,
                    taps[2].x * x0.z + taps[2].y * x1.z + taps[2].z * x2.z + taps[2].w * x3.z,
                    taps[3].x * x0.w + taps[3].y * x1.w + taps[3].z * x2.w + taps[3].w * x3.w};
      old[2] = old[1];
      old[1] = old[0];
      old[0] = x3;
      float square = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        y[e] = y[e] / (1.0f + __expf(-y[e]));
        square += y[e] * y[e];
      }
      const float scale = is_key ? rsqrtf(warp_sum(square) + 1e-6f) * extra : 1.0f;
      *reinterpret_cast<uint2*>(work.mixed + static_cast<std::int64_t>(row + i) * p.channels + channel) =
          make_uint2(half_pair(y[0] * scale, y[1] * scale), half_pair(y[2] * scale, y[3] * scale));
    }
  }
}

// --- what does not need the state

struct ChunkPlace {
  int first = 0;  ///< row of the chunk's first token
  int rows = 0;   ///< of the chunk; 0: there is none at this slot
};

/// The chunk in a slot: sequence s has its chunks from slot row_start[s] / 64 + s on.
__device__ __forceinline__ ChunkPlace chunk_at(const DeltaNetParams& p, int slot) {
  for (int s = 0; s < p.sequences; ++s) {
    const int start = p.row_start[s], end = p.row_start[s + 1], chunk = slot - (start / kChunk + s);
    if (chunk < 0) break;
    if (start + chunk * kChunk < end) return {start + chunk * kChunk, min(kChunk, end - start - chunk * kChunk)};
  }
  return {};
}

struct SolveShared {
  __half k[kChunk][kRow], q[kChunk][kRow];
  float a[kChunk][kChunk + 4];  ///< A transposed
  float sum[kChunk], beta[kChunk];
};

__global__ void __launch_bounds__(kThreads, 2) solve(const __grid_constant__ DeltaNetParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  SolveShared& shared = *reinterpret_cast<SolveShared*>(memory);
  allow_next_kernel();
  wait_for_previous_kernel();
  const int slot = blockIdx.x, head = blockIdx.y, thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const ChunkPlace place = chunk_at(p, slot);
  if (place.rows == 0) return;
  const ChunkWork work = chunk_work(p);
  const int key_head = head / (p.value_heads / p.key_heads), key_width = p.key_heads * kDim;
  const __half* mixed = work.mixed + static_cast<std::int64_t>(place.first) * p.channels;
  for (int i = thread; i < kChunk * (kDim / 8); i += kThreads) {
    const int t = i / (kDim / 8), c = i % (kDim / 8) * 8;
    const __half* from = mixed + static_cast<std::int64_t>(min(t, place.rows - 1)) * p.channels + key_head * kDim + c;
    async_copy16_or_zero(shared_address(&shared.q[t][c]), from, t < place.rows);
    async_copy16_or_zero(shared_address(&shared.k[t][c]), from + key_width, t < place.rows);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  float* const sums = work.decay + static_cast<std::int64_t>(place.first) * p.value_heads + head;
  if (warp == 0) {
    float low = lane < place.rows ? sums[lane * p.value_heads] : 0.0f,
          high = lane + 32 < place.rows ? sums[(lane + 32) * p.value_heads] : 0.0f;
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
      const float a = __shfl_up_sync(~0u, low, step), b = __shfl_up_sync(~0u, high, step);
      if (lane >= step) {
        low += a;
        high += b;
      }
    }
    high += __shfl_sync(~0u, low, 31);
    shared.sum[lane] = low;
    shared.sum[lane + 32] = high;
    if (lane < place.rows) sums[lane * p.value_heads] = low;
    if (lane + 32 < place.rows) sums[(lane + 32) * p.value_heads] = high;
  } else if (warp == 1) {
    const float* beta = work.beta + static_cast<std::int64_t>(place.first) * p.value_heads + head;
    for (int t = lane; t < kChunk; t += 32) shared.beta[t] = t < place.rows ? beta[t * p.value_heads] : 0.0f;
  }
  // The right side: column `c` of v or of k.
  const bool is_value = thread < kDim;
  const int c = thread & (kDim - 1);
  const __half* column = mixed + c + (is_value ? 2 * key_width + head * kDim : key_width + key_head * kDim);
  __half2 right[kChunk / 2];
#pragma unroll
  for (int t = 0; t < kChunk; t += 2) {
    const auto value = [&](int i) {
      return i < place.rows ? column[static_cast<std::int64_t>(i) * p.channels] : __half(0.0f);
    };
    right[t / 2] = __halves2half2(value(t), value(t + 1));
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();

  // Products of keys with keys (warps 0..3) or with queries (4..7), sixteen tokens a warp.
  {
    const int tile = warp & 3, g = lane >> 2, quad = lane & 3;
    const bool with_queries = warp >= 4;
    float product[kChunk / 8][4] = {};
    const std::uint32_t rows = shared_address(with_queries ? &shared.q[tile * 16][0] : &shared.k[tile * 16][0]),
                        keys = shared_address(&shared.k[0][0]);
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t a[4];
      load_rows(rows + step * 32, kRow * 2, a);
#pragma unroll
      for (int n = 0; n < kChunk / 16; ++n) {
        if (n > tile) continue;  // later tokens
        std::uint32_t b[4];
        load_columns(keys + n * 16 * kRow * 2 + step * 32, kRow * 2, b);
        mma_f16(product[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_f16(product[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
    __half* pairs = work.pairs + (static_cast<std::int64_t>(slot) * p.value_heads + head) * kChunk * kChunk;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = tile * 16 + g + half * 8, j = n * 8 + quad * 2;
        const float sum = shared.sum[t];
        float y[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool counts = with_queries ? j + e <= t : j + e < t;
          y[e] = counts ? __expf(sum - shared.sum[j + e]) * product[n][half * 2 + e] : 0.0f;
        }
        if (with_queries) {
          *reinterpret_cast<std::uint32_t*>(pairs + t * kChunk + j) = half_pair(y[0], y[1]);
        } else {
          shared.a[j][t] = shared.beta[t] * y[0];
          shared.a[j + 1][t] = shared.beta[t] * y[1];
        }
      }
    }
  }
  __syncthreads();
  float x[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; t += 2) {
    const float2 two = __half22float2(right[t / 2]);
    x[t] = two.x * shared.beta[t] * (is_value ? 1.0f : __expf(shared.sum[t]));
    x[t + 1] = two.y * shared.beta[t + 1] * (is_value ? 1.0f : __expf(shared.sum[t + 1]));
  }
#pragma unroll
  for (int i = 0; i < kChunk - 1; ++i) {
#pragma unroll
    for (int t = (i + 1) / 4 * 4; t < kChunk; t += 4) {
      const float4 a = *reinterpret_cast<const float4*>(&shared.a[i][t]);
      if (t > i) x[t] -= a.x * x[i];
      if (t + 1 > i) x[t + 1] -= a.y * x[i];
      if (t + 2 > i) x[t + 2] -= a.z * x[i];
      if (t + 3 > i) x[t + 3] -= a.w * x[i];
    }
  }
  __half* out =
      (is_value ? work.u : work.w) + (static_cast<std::int64_t>(place.first) * p.value_heads + head) * kDim + c;
#pragma unroll
  for (int t = 0; t < kChunk; ++t)
    if (t < place.rows) out[static_cast<std::int64_t>(t) * p.value_heads * kDim] = to_half_in_range(x[t]);
}

// --- the walk over the chunks

struct ScanShared {
  __half w[kChunk][kRow], q[kChunk][kRow], k[kChunk][kRow], pairs[kChunk][kPairRow];
  __half u[kChunk][kSliceRow], state[kDim][kSliceRow];
  __half change[kChunk][kSliceRow], decayed[kChunk][kSliceRow];  ///< d, and d times the decay that follows
  float grown[kChunk], left[kChunk];                             ///< exp(G), exp(G_last - G)
};

/// A thread block a sequence, head and 32 columns of its values.
__global__ void __launch_bounds__(kThreads, 2) scan(const __grid_constant__ DeltaNetParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  ScanShared& shared = *reinterpret_cast<ScanShared*>(memory);
  allow_next_kernel();
  wait_for_previous_kernel();
  const int slice = blockIdx.x * kSlice, head = blockIdx.y, sequence = blockIdx.z, thread = threadIdx.x,
            lane = thread & 31, warp = thread >> 5, g = lane >> 2, quad = lane & 3;
  const int first = p.row_start[sequence], rows = p.row_start[sequence + 1] - first;
  const std::int64_t slot = p.slots[sequence];
  if (rows <= 0) return;
  const ChunkWork work = chunk_work(p);
  const int key_head = head / (p.value_heads / p.key_heads), key_width = p.key_heads * kDim;
  const std::int64_t values = std::int64_t{p.value_heads} * kDim;

  const auto fetch_solution = [&](int from) {
    for (int i = thread; i < kChunk * (kDim / 8 + kSlice / 8); i += kThreads) {
      const int t = i / (kDim / 8 + kSlice / 8), c = i % (kDim / 8 + kSlice / 8) * 8;
      const std::int64_t at = static_cast<std::int64_t>(first + min(from + t, rows - 1)) * values + head * kDim;
      if (c < kDim) {
        async_copy16_or_zero(shared_address(&shared.w[t][c]), work.w + at + c, from + t < rows);
      } else {
        async_copy16_or_zero(shared_address(&shared.u[t][c - kDim]), work.u + at + slice + c - kDim, from + t < rows);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const auto fetch_keys = [&](int from) {
    for (int i = thread; i < kChunk * (kDim / 8); i += kThreads) {
      const int t = i / (kDim / 8), c = i % (kDim / 8) * 8;
      const __half* mixed =
          work.mixed + static_cast<std::int64_t>(first + min(from + t, rows - 1)) * p.channels + key_head * kDim + c;
      async_copy16_or_zero(shared_address(&shared.q[t][c]), mixed, from + t < rows);
      async_copy16_or_zero(shared_address(&shared.k[t][c]), mixed + key_width, from + t < rows);
    }
    const __half* pairs =
        work.pairs +
        (static_cast<std::int64_t>(first / kChunk + sequence + from / kChunk) * p.value_heads + head) * kChunk * kChunk;
    for (int i = thread; i < kChunk * (kChunk / 8); i += kThreads) {
      const int t = i / (kChunk / 8), c = i % (kChunk / 8) * 8;
      async_copy16(shared_address(&shared.pairs[t][c]), pairs + t * kChunk + c);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const auto log_decay = [&](int from, int t) {  // sum of log decays from the chunk's start
    return work.decay[static_cast<std::int64_t>(first + min(from + t, rows - 1)) * p.value_heads + head];
  };
  fetch_solution(0);
  fetch_keys(0);
  float own_sum = 0, last_sum = 0;
  if (thread < kChunk) {
    own_sum = log_decay(0, thread);
    last_sum = log_decay(0, kChunk - 1);
  }
  move_window(p, first, rows, slot);

  // The state: warp w has keys 16 w .. of the slice.
  float s[kSlice / 8][4];
  float* state = p.state + slot * p.state_stride + (static_cast<std::int64_t>(head) * kDim + warp * 16 + g) * kDim +
                 slice + quad * 2;
  const auto keep_state = [&] {
#pragma unroll
    for (int n = 0; n < kSlice / 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(&shared.state[warp * 16 + g][n * 8 + quad * 2]) = half_pair(s[n][0], s[n][1]);
      *reinterpret_cast<std::uint32_t*>(&shared.state[warp * 16 + g + 8][n * 8 + quad * 2]) =
          half_pair(s[n][2], s[n][3]);
    }
  };
#pragma unroll
  for (int n = 0; n < kSlice / 8; ++n) {
    const float2 a = *reinterpret_cast<const float2*>(state + n * 8),
                 b = *reinterpret_cast<const float2*>(state + 8 * kDim + n * 8);
    s[n][0] = a.x;
    s[n][1] = a.y;
    s[n][2] = b.x;
    s[n][3] = b.y;
  }
  keep_state();

  const int tile = warp >> 1, part = (warp & 1) * 16;  // of the outputs: tokens 16 * tile .., columns part ..
#pragma unroll 1
  for (int from = 0; from < rows; from += kChunk) {
    const bool more = from + kChunk < rows;
    float next_sum = 0, next_last = 0;
    if (thread < kChunk) {
      shared.grown[thread] = __expf(own_sum);
      shared.left[thread] = __expf(last_sum - own_sum);
      if (more) {
        next_sum = log_decay(from + kChunk, thread);
        next_last = log_decay(from + kChunk, kChunk - 1);
      }
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();  // W, U and the state are there

    float change[2][4] = {};
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t a[4], b[4];
      load_rows(shared_address(&shared.w[tile * 16][step * 16]), kRow * 2, a);
      load_transposed(shared_address(&shared.state[step * 16][part]), kSliceRow * 2, b);
      mma_f16(change[0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_f16(change[1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = tile * 16 + g + half * 8, c = part + n * 8 + quad * 2;
        const float2 u = __half22float2(*reinterpret_cast<const __half2*>(&shared.u[t][c]));
        const float x = u.x - change[n][half * 2], y = u.y - change[n][half * 2 + 1], left = shared.left[t];
        *reinterpret_cast<std::uint32_t*>(&shared.change[t][c]) = half_pair(x, y);
        *reinterpret_cast<std::uint32_t*>(&shared.decayed[t][c]) = half_pair(left * x, left * y);
      }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();  // d, q, k and P are there; W and U are not needed any more
    if (more) fetch_solution(from + kChunk);

    float out[2][4] = {};
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t a[4], b[4];
      load_rows(shared_address(&shared.q[tile * 16][step * 16]), kRow * 2, a);
      load_transposed(shared_address(&shared.state[step * 16][part]), kSliceRow * 2, b);
      mma_f16(out[0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_f16(out[1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
    const float low = shared.grown[tile * 16 + g], high = shared.grown[tile * 16 + g + 8];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      out[n][0] *= low;
      out[n][1] *= low;
      out[n][2] *= high;
      out[n][3] *= high;
    }
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      if (step > tile) continue;  // later tokens
      std::uint32_t a[4], b[4];
      load_rows(shared_address(&shared.pairs[tile * 16][step * 16]), kPairRow * 2, a);
      load_transposed(shared_address(&shared.change[step * 16][part]), kSliceRow * 2, b);
      mma_f16(out[0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_f16(out[1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = from + tile * 16 + g + half * 8;
      if (t >= rows) continue;
      float* to = work.result + (first + t) * values + head * kDim + slice + part + quad * 2;
      *reinterpret_cast<float2*>(to) = make_float2(out[0][half * 2], out[0][half * 2 + 1]);
      *reinterpret_cast<float2*>(to + 8) = make_float2(out[1][half * 2], out[1][half * 2 + 1]);
    }

    const float all = shared.grown[kChunk - 1];
#pragma unroll
    for (int n = 0; n < kSlice / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] *= all;
    }
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      std::uint32_t a[4];
      load_rows_transposed(shared_address(&shared.k[step * 16][warp * 16]), kRow * 2, a);
#pragma unroll
      for (int n = 0; n < kSlice / 16; ++n) {
        std::uint32_t b[4];
        load_transposed(shared_address(&shared.decayed[step * 16][n * 16]), kSliceRow * 2, b);
        mma_f16(s[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_f16(s[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
    __syncthreads();  // nobody reads the old state, q, k, P, d any more
    if (more) fetch_keys(from + kChunk);
    keep_state();
    own_sum = next_sum;
    last_sum = next_last;
  }
#pragma unroll
  for (int n = 0; n < kSlice / 8; ++n) {
    *reinterpret_cast<float2*>(state + n * 8) = make_float2(s[n][0], s[n][1]);
    *reinterpret_cast<float2*>(state + 8 * kDim + n * 8) = make_float2(s[n][2], s[n][3]);
  }
}

}  // namespace

bool delta_chunks_fit(const LaunchContext& context, const DeltaNetParams& p) {
  const auto is_aligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  return delta_chunks_pay(p.rows, p.sequences, p.key_dim, p.value_dim, p.kernel) &&
         context.shared_bytes >= static_cast<int>(sizeof(ScanShared)) && p.qkv.f32 != 0 && is_aligned(p.qkv.data) &&
         p.qkv.stride % 4 == 0 && is_aligned(p.conv_weight) && is_aligned(p.window) && p.window_stride % 4 == 0 &&
         p.state_stride % 2 == 0;
}

void launch_delta_chunks(const LaunchContext& context, const DeltaNetParams& p) {
  const auto heads = static_cast<unsigned>(2 * p.key_heads + p.value_heads),
             value_heads = static_cast<unsigned>(p.value_heads);
  launch(context, convolve_rows, dim3((heads + 3) / 4, static_cast<unsigned>((p.rows + kConvRows - 1) / kConvRows)),
         128, 0, p);
  launch(context, solve, dim3(static_cast<unsigned>(p.rows / kChunk + p.sequences), value_heads), kThreads,
         sizeof(SolveShared), p);
  launch(context, scan, dim3(kDim / kSlice, value_heads, static_cast<unsigned>(p.sequences)), kThreads,
         sizeof(ScanShared), p);
}

}  // namespace pergola::cuda
