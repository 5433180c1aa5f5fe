// Sums on matrix units (cl_intel_subgroup_matrix_multiply_accumulate) for sub-groups of 16, or their plain twins.
//
// A lane's own decoded weights are its column of the B operand, so nothing moves between lanes: of mul1 the 32-bit
// product itself is four u8 elements of the inner dimension, against the activation's byte four times; of mcg and 3inst
// the masked word is two fp16 elements, against the activation twice. Fragment h of a tile pair are columns 8h .. 8h +
// 7 of both tiles. A fragments, [inputs / 8][fragment rows][16] ushort in local memory: lane l holds elements 2l and 2l
// + 1 of int8, or element l of fp16, which is input l / 2 of the eight.

#define FRAGMENTS(codebook) ((codebook) == 2 ? ROWS * BYTES / 8 : ROWS / 8)

// The plain twins: a lane's eight values of B against eight fragment rows in memory.
ALWAYS_INLINE int8 multiply_bytes_plain(__local const ushort* a, uint8 b, int8 sums) {
  int* sum = (int*)&sums;
  const uint* words = (const uint*)&b;
  for (int m = 0; m < 8; ++m)
    for (int i = 0; i < 8; ++i)
      sum[m] = dot_signed(words[i], (uint)a[m * 16 + 2 * i] | ((uint)a[m * 16 + 2 * i + 1] << 16), sum[m]);
  return sums;
}

ALWAYS_INLINE float8 multiply_halves_plain(__local const ushort* a, uint8 b, float8 sums) {
  float* sum = (float*)&sums;
  const uint* words = (const uint*)&b;
  for (int m = 0; m < 8; ++m) {
    for (int i = 0; i < 8; ++i) {
      sum[m] = fma(vload_half(m * 16 + 2 * i, (__local const half*)a), half_value(words[i] & 0xFFFFu), sum[m]);
      sum[m] = fma(vload_half(m * 16 + 2 * i + 1, (__local const half*)a), half_value(words[i] >> 16), sum[m]);
    }
  }
  return sums;
}

#if defined(HAVE_DPAS)
typedef short8 fragment_t;
ALWAYS_INLINE fragment_t load_fragment(__local const ushort* at) {
  return as_short8(intel_sub_group_block_read_us8(at));
}
ALWAYS_INLINE int8 multiply_bytes(fragment_t a, uint8 b, int8 sums) {
  return intel_sub_group_i8_u8_matrix_mad_k32(a, b, sums);
}
ALWAYS_INLINE float8 multiply_halves(fragment_t a, uint8 b, float8 sums) {
  return intel_sub_group_f16_f16_matrix_mad_k16(a, as_int8(b), sums);
}
#else
typedef __local const ushort* fragment_t;
ALWAYS_INLINE fragment_t load_fragment(__local const ushort* at) {
  return at;
}
#define multiply_bytes multiply_bytes_plain
#define multiply_halves multiply_halves_plain
#endif

// Adds one slab's tile rows; scales[m] turns a row's sums into values.
ALWAYS_INLINE void fragment_sums(const int codebook, const int bits, __global const uint* words, ulong stride,
                                 uint first, uint step, uint count, __local const ushort* x,
                                 __local const float* scales, uint zero, rows_t* sum0, rows_t* sum1) {
  // Rows of a fragment in memory: ROWS * BYTES of them for every eight inputs, for halves only the first ROWS are used.
  const uint eight = ROWS * BYTES * 16u;
  int8 bytes0[FRAGMENTS(2)], bytes1[FRAGMENTS(2)];
  float8 halves0[FRAGMENTS(0)], halves1[FRAGMENTS(0)];
  UNROLL
  for (int f = 0; f < FRAGMENTS(2); ++f) bytes0[f] = bytes1[f] = (int8)(0);
  UNROLL
  for (int f = 0; f < FRAGMENTS(0); ++f) halves0[f] = halves1[f] = (float8)(0.0f);
  __global const uint* source = words + first * stride;
  for (uint tile = first; tile < count; tile += step, source += step * stride) {
    uint w[8];
    const uint before = load_words(bits, source, w);
    UNROLL
    for (int part = 0; part < 2; ++part) {
      uint b0[8], b1[8];
      UNROLL
      for (int i = 0; i < 8; ++i) {
        const int r = 8 * part + i;
        const uint s0 = window(before, w, (POSITION(r) + 1) * bits), s1 = window(before, w, (POSITION(r) + 5) * bits);
        if (codebook == 2) {
          b0[i] = s0 * 0x83DCD12Du;
          b1[i] = s1 * 0x83DCD12Du;
        } else {
          const uint y0 = codebook == 1 ? s0 * 0xCBAC1FEDu : s0 * 89226354u + 64248484u;
          const uint y1 = codebook == 1 ? s1 * 0xCBAC1FEDu : s1 * 89226354u + 64248484u;
          b0[i] = (y0 & 0x8FFF8FFFu) ^ 0x3B603B60u;
          b1[i] = (y1 & 0x8FFF8FFFu) ^ 0x3B603B60u;
        }
      }
      // Eight products that are all alike would be joined into one vector multiply of full width, twice as dear.
      b0[7] += zero;
      b1[7] += zero;
      const uint8 v0 = (uint8)(b0[0], b0[1], b0[2], b0[3], b0[4], b0[5], b0[6], b0[7]);
      const uint8 v1 = (uint8)(b1[0], b1[1], b1[2], b1[3], b1[4], b1[5], b1[6], b1[7]);
      __local const ushort* at = x + (tile * 2u + part) * eight;
      if (codebook == 2) {
        UNROLL
        for (int f = 0; f < FRAGMENTS(2); ++f) {
          const fragment_t a = load_fragment(at + f * 128);
          bytes0[f] = multiply_bytes(a, v0, bytes0[f]);
          bytes1[f] = multiply_bytes(a, v1, bytes1[f]);
        }
      } else {
        UNROLL
        for (int f = 0; f < FRAGMENTS(0); ++f) {
          const fragment_t a = load_fragment(at + f * 128);
          halves0[f] = multiply_halves(a, v0, halves0[f]);
          halves1[f] = multiply_halves(a, v1, halves1[f]);
        }
      }
    }
  }
  float8 *to0 = (float8*)sum0, *to1 = (float8*)sum1;
  UNROLL
  for (int f = 0; f < ROWS / 8; ++f) {
    const float8 scale = vload8(f, scales);
    float8 value0 = halves0[f], value1 = halves1[f];
    if (codebook == 2) {
      value0 = convert_float8(bytes0[f]);
      value1 = convert_float8(bytes1[f]);
#if BYTES == 2  // the low bytes are the second half of the fragments
      value0 = fma(value0, (float8)(256.0f), convert_float8(bytes0[ROWS / 8 + f]));
      value1 = fma(value1, (float8)(256.0f), convert_float8(bytes1[ROWS / 8 + f]));
#endif
    }
    to0[f] = fma(value0, scale, to0[f]);
    to1[f] = fma(value1, scale, to1[f]);
  }
}
