// Products of packed EXL3 matrices (and dense ones) with ROWS activation rows, for work-groups of (64, S) work-items
// that make 128 outputs: lane = (tile of 8, column pair g). A lane owns columns g and g + 8 of its tile for all 16 rows
// of it, which is exactly K consecutive words of the packed tile; the word before them is the last one of lane g - 1.
// So every bit offset is a constant, and the words of a work-group's tile row lie together in memory.
//
// Options: ROWS (1, 4, 8, 16), KINDS (bit mask of the kinds of matrix that may come; codes in matrix.h), SLAB (inputs
// in local memory at a time) and ARITHMETIC, which is how the slab holds activations and weights are multiplied:
//   0  fp32 activations, codebook values rounded to binary16 as the format defines them
//   1  fp32 activations, without that rounding
//   2  mul1: int8 activations, their byte four times times the product's four bytes; others as 1
//   3  matrix units (dpas.h): mul1 with int8 activations or 16-bit ones in two bytes (BYTES 1 or 2), the others with
//   fp16

#ifndef BYTES
#define BYTES 1
#endif
#define BLOCK 128u
#define LANES 64u
#define KIND_DENSE 24u
#define KIND_BIT(kind) ((ulong)KINDS & (1ul << (kind)))

// One bound matrix: mirrors opencl::Matrix in matrix.h. Offsets count from the start of its arena: words for trellis,
// elements for dense weights, halves for suh and svh, floats for the bias (all ones: none).
typedef struct {
  ulong weights, suh, svh, bias;
  uint in, out, stored_in, stored_out;
  uint kind, arena;
  uint zero;  // 0, which the compiler does not know (dpas.h)
  uint reserved;
} matrix_t;

#define ARENA_PARAMETERS                                                                                            \
  __global const uint *restrict arena0, __global const uint *restrict arena1, __global const uint *restrict arena2, \
      __global const uint *restrict arena3
#define ARENA_OF(matrix) \
  ((matrix).arena == 0 ? arena0 : (matrix).arena == 1 ? arena1 : (matrix).arena == 2 ? arena2 : arena3)

// The 16 bits that end at bit `end` of the lane's stream; `end` is a constant after unrolling.
ALWAYS_INLINE uint window(uint before, const uint* words, int end) {
  const int i = (end - 1) >> 5, shift = 32 * (i + 1) - end;
  const uint low = words[i];
  if (shift <= 16) return (ushort)(low >> shift);
  const uint high = i > 0 ? words[i - 1] : before;
  const uint middle = (high << 16) | (low >> 16);  // one word a border, shared by its windows
  return (ushort)(middle >> (shift - 16));
}

// Both halves of a masked codebook word are normal numbers with exponents 12 to 15, so they become floats by moving
// bits. 0x8FFF8FFF and 0x3B603B60 are the format's constants.
ALWAYS_INLINE float low_half(uint x) {
  return as_float((((x & 0x0FFFu) << 13) ^ 0x3F6C0000u) | ((x & 0x8000u) << 16));
}
ALWAYS_INLINE float high_half(uint x) {
  return as_float((((x >> 3) & 0x01FFE000u) ^ 0x3F6C0000u) | (x & 0x80000000u));
}

// A mul1 value is the byte sum of its product times this factor plus this offset, up to its rounding to binary16.
#define MUL1_FACTOR 0.00676727294921875f
#define MUL1_OFFSET -3.453125f

// With ARITHMETIC 1 a mul1 weight enters the sums as its product's byte sum alone; the factor and the offset times the
// sum of the activations are applied to the finished sums (finish_outputs).
#define SUMS_ARE_BYTES(kind) (ARITHMETIC >= 1 && (kind) >= 16u && (kind) < KIND_DENSE)
// Whether byte sums carry the offset of byte_sum().
#define BYTES_ARE_FLOATS (ARITHMETIC == 1)
// Whether a kind's activations are quantised, with one scale a row and slab.
#define IS_QUANTIZED(kind) ((ARITHMETIC == 2 && (kind) >= 16u || ARITHMETIC == 3) && (kind) < KIND_DENSE)

// Codebooks: 0 3inst, 1 mcg, 2 mul1.
ALWAYS_INLINE float codebook_value(const int codebook, uint state) {
#if ARITHMETIC >= 1
  if (codebook == 2) return byte_sum(state * 0x83DCD12Du);
#endif
  float value;
  if (codebook == 2) {
    value = fma((float)dot_bytes(state * 0x83DCD12Du, 0x01010101u, 0u), MUL1_FACTOR, MUL1_OFFSET);
  } else {
    const uint x = codebook == 1 ? state * 0xCBAC1FEDu : state * 89226354u + 64248484u;
    value = low_half(x) + high_half(x);
  }
#if ARITHMETIC == 0
  value = round_to_half(value);
#endif
  return value;
}

// Where input k of row m lies in the slab, in floats. For matrix units 8 inputs of a row lie together: the 32 bytes of
// one row of a fragment; with two bytes a value the rows of the low bytes follow those of the high ones.
#if ARITHMETIC == 3
#define SLAB_AT(k, m) ((((k) >> 3) * (ROWS * BYTES) + (m)) * 8u + ((k)&7u))
#else
#define SLAB_AT(k, m) ((k)*ROWS + (m))
#endif

// The lane's words of one tile and the word before them.
ALWAYS_INLINE uint load_words(const int bits, __global const uint* source, uint* w) {
  const uint lane = get_local_id(0);
  UNROLL
  for (int i = 0; i < bits; ++i) {
    w[i] = source[lane * bits + i];
#ifdef COUNT_WORDS  // in a test: how often a word is read as a lane's own is counted so many words further on
    atomic_inc((volatile __global uint*)(source + COUNT_WORDS + lane * bits + i));
#endif
  }
  return source[((lane & ~7u) | ((lane + 7u) & 7u)) * bits + bits - 1];
}

// Stream position of row r of the lane's first column; its second column is 4 further.
#define POSITION(r) (((r)&1) + 2 * ((r) >> 3) + 8 * (((r) >> 1) & 1) + 16 * (((r) >> 2) & 1))

#if ARITHMETIC == 2
// The integer sums of a mul1 slab; scales[m] turns them into values.
ALWAYS_INLINE void byte_sums(const int bits, __global const uint* words, ulong stride, uint first, uint step,
                             uint count, __local const float* x, __local const float* scales, rows_t* sum0,
                             rows_t* sum1) {
  __local const uint* bytes = (__local const uint*)x;
  int a0[ROWS], a1[ROWS];
  UNROLL
  for (int m = 0; m < ROWS; ++m) a0[m] = a1[m] = 0;
  __global const uint* source = words + first * stride;
  for (uint tile = first; tile < count; tile += step, source += step * stride) {
    uint w[8];
    const uint before = load_words(bits, source, w);
    UNROLL
    for (int r = 0; r < 16; ++r) {
      const uint w0 = window(before, w, (POSITION(r) + 1) * bits) * 0x83DCD12Du;
      const uint w1 = window(before, w, (POSITION(r) + 5) * bits) * 0x83DCD12Du;
      UNROLL
      for (int m = 0; m < ROWS; ++m) {
        const uint a = bytes[(tile * 16u + r) * ROWS + m];
        a0[m] = dot_signed(w0, a, a0[m]);
        a1[m] = dot_signed(w1, a, a1[m]);
      }
    }
  }
  float *to0 = (float*)sum0, *to1 = (float*)sum1;
  UNROLL
  for (int m = 0; m < ROWS; ++m) {
    to0[m] = fma((float)a0[m], scales[m], to0[m]);
    to1[m] = fma((float)a1[m], scales[m], to1[m]);
  }
}
#endif

#if ARITHMETIC == 3
#include "dpas.h"
#endif

// Adds tile rows first, first + step, ... of [0, count) to both sums. words: the block's first tile row; a tile row is
// `stride` words long. x[k * ROWS + m] from the same tile row on.
ALWAYS_INLINE void trellis_sums(const int codebook, const int bits, __global const uint* words, ulong stride,
                                uint first, uint step, uint count, __local const float* x, __local const float* scales,
                                uint zero, rows_t* sum0, rows_t* sum1) {
#if ARITHMETIC == 3
  fragment_sums(codebook, bits, words, stride, first, step, count, (__local const ushort*)x, scales, zero, sum0, sum1);
#else
#if ARITHMETIC == 2
  if (codebook == 2) {
    byte_sums(bits, words, stride, first, step, count, x, scales, sum0, sum1);
    return;
  }
#endif
  rows_t a0 = *sum0, a1 = *sum1;
  __global const uint* source = words + first * stride;
  for (uint tile = first; tile < count; tile += step, source += step * stride) {
    uint w[8];
    const uint before = load_words(bits, source, w);
    __local const float* row = x + tile * (16u * ROWS);
    UNROLL
    for (int r = 0; r < 16; ++r) {
      const float w0 = codebook_value(codebook, window(before, w, (POSITION(r) + 1) * bits));
      const float w1 = codebook_value(codebook, window(before, w, (POSITION(r) + 5) * bits));
      const rows_t activations = LOAD_ROWS(r, row);
      a0 = fma((rows_t)w0, activations, a0);
      a1 = fma((rows_t)w1, activations, a1);
    }
  }
  *sum0 = a0;
  *sum1 = a1;
#endif
}

ALWAYS_INLINE float dense_value(__global const uint* arena, uint kind, ulong index) {
  if (kind == KIND_DENSE) return ((__global const float*)arena)[index];
  if (kind == KIND_DENSE + 1) return load_half((__global const ushort*)arena, index);
  return as_float((uint)((__global const ushort*)arena)[index] << 16);
}

// The same for a dense matrix, whose lanes have the columns of a trellis.
ALWAYS_INLINE void dense_sums(__global const uint* arena, const matrix_t* matrix, uint column, uint base, uint first,
                              uint step, uint count, __local const float* x, rows_t* sum0, rows_t* sum1) {
  for (uint tile = first; tile < count; tile += step) {
    for (uint r = 0; r < 16; ++r) {
      const uint k = tile * 16u + r;
      if (base + k >= matrix->in) break;
      const rows_t activations = LOAD_ROWS(k, x);
      const ulong at = matrix->weights + base + k;
      if (column < matrix->out)
        *sum0 = fma((rows_t)dense_value(arena, matrix->kind, at + (ulong)column * matrix->in), activations, *sum0);
      if (column + 8u < matrix->out)
        *sum1 =
            fma((rows_t)dense_value(arena, matrix->kind, at + (ulong)(column + 8u) * matrix->in), activations, *sum1);
    }
  }
}

#define KIND_CASE(codebook, bits)                                                                 \
  case codebook * 8 + bits - 1:                                                                   \
    trellis_sums(codebook, bits, words, stride, first, step, count, x, scales, zero, sum0, sum1); \
    break;

// Adds inputs [base, base + 16 * count) of one block of 128 outputs, every `step`th tile row from `first` on.
ALWAYS_INLINE void block_sums(__global const uint* arena, const matrix_t* matrix, uint block, uint base, uint first,
                              uint step, uint count, __local const float* x, __local const float* scales, rows_t* sum0,
                              rows_t* sum1) {
  const uint zero = matrix->zero;
  const uint bits = (matrix->kind & 7u) + 1u;
  const ulong stride = (ulong)(matrix->stored_out / 16u) * 8u * bits;
  __global const uint* words = arena + matrix->weights + (ulong)(base / 16u) * stride + (ulong)block * 64u * bits;
  switch (matrix->kind) {
#if KINDS & 0x000001
    KIND_CASE(0, 1)
#endif
#if KINDS & 0x000002
    KIND_CASE(0, 2)
#endif
#if KINDS & 0x000004
    KIND_CASE(0, 3)
#endif
#if KINDS & 0x000008
    KIND_CASE(0, 4)
#endif
#if KINDS & 0x000010
    KIND_CASE(0, 5)
#endif
#if KINDS & 0x000020
    KIND_CASE(0, 6)
#endif
#if KINDS & 0x000040
    KIND_CASE(0, 7)
#endif
#if KINDS & 0x000080
    KIND_CASE(0, 8)
#endif
#if KINDS & 0x000100
    KIND_CASE(1, 1)
#endif
#if KINDS & 0x000200
    KIND_CASE(1, 2)
#endif
#if KINDS & 0x000400
    KIND_CASE(1, 3)
#endif
#if KINDS & 0x000800
    KIND_CASE(1, 4)
#endif
#if KINDS & 0x001000
    KIND_CASE(1, 5)
#endif
#if KINDS & 0x002000
    KIND_CASE(1, 6)
#endif
#if KINDS & 0x004000
    KIND_CASE(1, 7)
#endif
#if KINDS & 0x008000
    KIND_CASE(1, 8)
#endif
#if KINDS & 0x010000
    KIND_CASE(2, 1)
#endif
#if KINDS & 0x020000
    KIND_CASE(2, 2)
#endif
#if KINDS & 0x040000
    KIND_CASE(2, 3)
#endif
#if KINDS & 0x080000
    KIND_CASE(2, 4)
#endif
#if KINDS & 0x100000
    KIND_CASE(2, 5)
#endif
#if KINDS & 0x200000
    KIND_CASE(2, 6)
#endif
#if KINDS & 0x400000
    KIND_CASE(2, 7)
#endif
#if KINDS & 0x800000
    KIND_CASE(2, 8)
#endif
#if KINDS & 0x7000000
    case KIND_DENSE:
    case KIND_DENSE + 1:
    case KIND_DENSE + 2: {
      const uint lane = get_local_id(0);
      dense_sums(arena, matrix, block * BLOCK + (lane >> 3) * 16u + (lane & 7u), base, first, step, count, x, sum0,
                 sum1);
      break;
    }
#endif
    default:
      break;
  }
}
