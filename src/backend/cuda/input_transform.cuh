// The input side of a trellis linear: x * suh, the Hadamard transform, and the order in which tensor-core lanes will
// want the values.
//
// Eight lanes share a block of 128 values; a warp takes four blocks at once. Lane `sub` of a block holds values 8 * sub
// .. + 7 ("low") and 64 + 8 * sub .. + 7 ("high"): the two units of 64 inputs.
#pragma once

#include "backend/cuda/hadamard.cuh"
#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

/// Eight values of a row from `at` on, zeros beyond the row's width.
__device__ __forceinline__ void load_values(const void* x, bool f32, std::int64_t row_start, int at, int width,
                                            float (&v)[8]) {
  if (at + 8 <= width && (row_start & 7) == 0) {
    if (f32) {
      const float4* from = reinterpret_cast<const float4*>(static_cast<const float*>(x) + row_start + at);
      const float4 a = from[0], b = from[1];
      v[0] = a.x;
      v[1] = a.y;
      v[2] = a.z;
      v[3] = a.w;
      v[4] = b.x;
      v[5] = b.y;
      v[6] = b.z;
      v[7] = b.w;
    } else {
      const uint4 raw = *reinterpret_cast<const uint4*>(static_cast<const __half*>(x) + row_start + at);
      const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
        v[2 * i] = two.x;
        v[2 * i + 1] = two.y;
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = 0;
    if (at + i < width)
      v[i] = f32 ? static_cast<const float*>(x)[row_start + at + i]
                 : __half2float(static_cast<const __half*>(x)[row_start + at + i]);
  }
}

__device__ __forceinline__ float activate(int activation, float v) {
  if (activation == 0) return v / (1.0f + __expf(-v));
  return 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
}

/// load_values for rows that end or start in odd places.
__device__ __forceinline__ void load_ragged_inline(const void* x, bool f32, std::int64_t row_start, int at, int width,
                                                   float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = 0;
    if (at + i < width)
      v[i] = f32 ? static_cast<const float*>(x)[row_start + at + i]
                 : __half2float(static_cast<const __half*>(x)[row_start + at + i]);
  }
}

/// The same out of line, for kernels whose code is short of room. Its caller's values then live in memory.
static __device__ __noinline__ void load_ragged(const void* x, bool f32, std::int64_t row_start, int at, int width,
                                                float (&v)[8]) {
  load_ragged_inline(x, f32, row_start, at, width, v);
}

__device__ __forceinline__ void widen(const uint4& raw, float (&v)[8]) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    v[2 * i] = two.x;
    v[2 * i + 1] = two.y;
  }
}

/// Values as they are in memory: eight of the low and eight of the high unit of a block.
struct RawValues {
  uint4 part[4];  ///< binary16: low, high; fp32: low, low, high, high

  __device__ __forceinline__ void load(const void* x, bool f32, std::int64_t at) {
    if (f32) {
      const uint4* from = reinterpret_cast<const uint4*>(static_cast<const float*>(x) + at);
      part[0] = from[0];
      part[1] = from[1];
      part[2] = from[16];
      part[3] = from[17];
    } else {
      const uint4* from = reinterpret_cast<const uint4*>(static_cast<const __half*>(x) + at);
      part[0] = from[0];
      part[1] = from[8];
    }
  }
  __device__ __forceinline__ void convert(bool f32, float (&low)[8], float (&high)[8]) const {
    if (f32) {
      const std::uint32_t a[8] = {part[0].x, part[0].y, part[0].z, part[0].w,
                                  part[1].x, part[1].y, part[1].z, part[1].w};
      const std::uint32_t b[8] = {part[2].x, part[2].y, part[2].z, part[2].w,
                                  part[3].x, part[3].y, part[3].z, part[3].w};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        low[i] = __uint_as_float(a[i]);
        high[i] = __uint_as_float(b[i]);
      }
    } else {
      widen(part[0], low);
      widen(part[1], high);
    }
  }
};

/// (gate lies like x.) The task's input at block * 128 + 8 * sub .. (low) and 64 further (high) of source row `row`,
/// times suh. All loads are under way before any is used.
template <bool kInline = false>
__device__ __forceinline__ void load_input(const TaskList& list, const TrellisTask& task, std::int64_t row, int block,
                                           int sub, float (&low)[8], float (&high)[8]) {
  const int at = block * 128 + sub * 8;
  const std::int64_t start = row * task.x_stride;
  const bool f32 = list.x_f32 != 0, gated = task.gate != nullptr,
             whole =
                 at + 72 <= task.x_width && (start & 7) == 0 && (reinterpret_cast<std::uintptr_t>(task.x) & 15) == 0;
  const uint4 low_signs = *reinterpret_cast<const uint4*>(task.suh + at),
              high_signs = *reinterpret_cast<const uint4*>(task.suh + at + 64);
  float low_gate[8], high_gate[8];
  if (whole) {
    RawValues x, gate;
    x.load(task.x, f32, start + at);
    if (gated) gate.load(task.gate, f32, start + at);
    x.convert(f32, low, high);
    if (gated) gate.convert(f32, low_gate, high_gate);
  } else {
    const auto ragged = [&](const void* from, int column, float(&to)[8]) {
      if constexpr (kInline) {
        load_ragged_inline(from, f32, start, column, task.x_width, to);
      } else {
        load_ragged(from, f32, start, column, task.x_width, to);
      }
    };
    ragged(task.x, at, low);
    ragged(task.x, at + 64, high);
    if (gated) {
      ragged(task.gate, at, low_gate);
      ragged(task.gate, at + 64, high_gate);
    }
  }
  if (gated) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      low[i] *= activate(list.activation, low_gate[i]);
      high[i] *= activate(list.activation, high_gate[i]);
    }
  }
  float signs[8];
  widen(low_signs, signs);
#pragma unroll
  for (int i = 0; i < 8; ++i) low[i] *= signs[i];
  widen(high_signs, signs);
#pragma unroll
  for (int i = 0; i < 8; ++i) high[i] *= signs[i];
}

__device__ __forceinline__ void butterfly8(float (&v)[8]) {
#pragma unroll
  for (int step = 1; step < 8; step <<= 1) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((i & step) == 0) {
        const float a = v[i], b = v[i + step];
        v[i] = a + b;
        v[i + step] = a - b;
      }
    }
  }
}

/// Normalised transform of the block that eight lanes share.
__device__ __forceinline__ void hadamard_block(float (&low)[8], float (&high)[8], int sub) {
  butterfly8(low);
  butterfly8(high);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float a = low[i], b = high[i];
    low[i] = a + b;
    high[i] = a - b;
  }
#pragma unroll
  for (int step = 1; step < 8; step <<= 1) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float a = __shfl_xor_sync(~0u, low[i], step), b = __shfl_xor_sync(~0u, high[i], step);
      low[i] = (sub & step) != 0 ? a - low[i] : a + low[i];
      high[i] = (sub & step) != 0 ? b - high[i] : b + high[i];
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    low[i] *= kHadamardScale;
    high[i] *= kHadamardScale;
  }
}

__device__ __forceinline__ std::uint32_t pack_half(float a, float b) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Eight values (rows r & 7 of half h = sub & 1 of band q = sub >> 1) as MMA fragments of `Operand::pairs` and
/// `packed`: word 2 * p + h of a lane's eight holds rows (2p, 2p + 1) of half h. Exchanges with the neighbour (sub ^
/// 1), which has the other half; returns words 4h .. 4h + 3 of lane (row, q).
__device__ __forceinline__ uint4 half_fragments(int sub, const float (&v)[8]) {
  const int h = sub & 1;
  std::uint32_t word[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) word[p] = pack_half(v[2 * p], v[2 * p + 1]);
  const unsigned block_lanes = 0xFFu << (threadIdx.x & 24);
  const std::uint32_t a = __shfl_xor_sync(block_lanes, h == 0 ? word[2] : word[0], 1),
                      b = __shfl_xor_sync(block_lanes, h == 0 ? word[3] : word[1], 1);
  return h == 0 ? make_uint4(word[0], a, word[1], b) : make_uint4(a, word[2], b, word[3]);
}

__device__ __forceinline__ std::uint32_t pack_bytes(int a, int b, int c, int d) {
  return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | static_cast<std::uint32_t>(d) << 24;
}

/// Eight 16-bit integers as MMA fragments of Operand::bytes. Even lanes (h = 0) get the upper bytes of all 16 rows of
/// the band, which belong to column 2 * row of B, odd lanes the lower ones for column 2 * row + 1.
__device__ __forceinline__ uint4 byte_fragments(int sub, const int (&v)[8]) {
  const int h = sub & 1;
  int upper[8], lower[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    upper[i] = (v[i] + 128) >> 8;
    lower[i] = v[i] - upper[i] * 256;
  }
  const std::uint32_t u0 = pack_bytes(upper[0], upper[1], upper[2], upper[3]),
                      u1 = pack_bytes(upper[4], upper[5], upper[6], upper[7]);
  const std::uint32_t l0 = pack_bytes(lower[0], lower[1], lower[2], lower[3]),
                      l1 = pack_bytes(lower[4], lower[5], lower[6], lower[7]);
  const unsigned block_lanes = 0xFFu << (threadIdx.x & 24);
  const std::uint32_t other0 = __shfl_xor_sync(block_lanes, h == 0 ? l0 : u0, 1),
                      other1 = __shfl_xor_sync(block_lanes, h == 0 ? l1 : u1, 1);
  // Rows 0..7 (a, from half 0) and 8..15 (b) of the bytes that this lane has gathered.
  const std::uint32_t a0 = h == 0 ? u0 : other0, a1 = h == 0 ? u1 : other1, b0 = h == 0 ? other0 : l0,
                      b1 = h == 0 ? other1 : l1;
  return make_uint4(permute(a0, b0, 0x5140), permute(a0, b0, 0x7362), permute(a1, b1, 0x5140), permute(a1, b1, 0x7362));
}

inline constexpr float kIntegerRange = 32512.0f;  ///< 127 * 256: the upper byte fits an int8 after rounding

__device__ __forceinline__ float largest(const float (&low)[8], const float (&high)[8]) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) most = fmaxf(most, fmaxf(fabsf(low[i]), fabsf(high[i])));
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  return most;
}

/// Rounds to integers and returns their sum.
__device__ __forceinline__ int to_integers(const float (&v)[8], float inverse, int (&out)[8]) {
  int total = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    out[i] = __float2int_rn(v[i] * inverse);
    total += out[i];
  }
  return total;
}

}  // namespace pergola::cuda
