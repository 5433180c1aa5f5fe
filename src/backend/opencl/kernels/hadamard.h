// The orthonormal 128-point Hadamard transform in local memory, in two passes over registers: 16 values with stride 8,
// then 8 adjacent ones.

#define HADAMARD_NORM 0.08838834764831845f

// One stage of butterflies on `count` values in registers. Stages are written out below: a loop over them would index
// the values at run time, which sends them to memory.
#define BUTTERFLY_STAGE(values, count, span)               \
  UNROLL                                                   \
  for (int i = 0; i < (count) / 2; ++i) {                  \
    const int low = i % (span) + i / (span)*2 * (span);    \
    const float a = values[low], b = values[low + (span)]; \
    values[low] = a + b;                                   \
    values[low + (span)] = a - b;                          \
  }
#define BUTTERFLIES_8(values)   \
  BUTTERFLY_STAGE(values, 8, 1) \
  BUTTERFLY_STAGE(values, 8, 2) \
  BUTTERFLY_STAGE(values, 8, 4)
#define BUTTERFLIES_16(values)   \
  BUTTERFLY_STAGE(values, 16, 1) \
  BUTTERFLY_STAGE(values, 16, 2) \
  BUTTERFLY_STAGE(values, 16, 4) \
  BUTTERFLY_STAGE(values, 16, 8)

// The second pass of `blocks` blocks of the slab and the norm, by `size` work-items.
ALWAYS_INLINE void hadamard_inputs(__local float* slab, uint blocks, uint id, uint size) {
  for (uint t = id; t < blocks * 16u * ROWS; t += size) {
    const uint m = t % ROWS, eight = t / ROWS;
    float v[8];
    UNROLL
    for (int i = 0; i < 8; ++i) v[i] = slab[SLAB_AT(eight * 8u + i, m)];
    BUTTERFLIES_8(v)
    UNROLL
    for (int i = 0; i < 8; ++i) slab[SLAB_AT(eight * 8u + i, m)] = v[i] * HADAMARD_NORM;
  }
}

// The same for one block of sums, values[m * 128 + column].
ALWAYS_INLINE void hadamard_sums(__local float* values, uint id, uint size) {
  for (uint t = id; t < 16u * ROWS; t += size) {
    __local float* at = values + t * 8u;
    float v[8];
    UNROLL
    for (int i = 0; i < 8; ++i) v[i] = at[i];
    BUTTERFLIES_8(v)
    UNROLL
    for (int i = 0; i < 8; ++i) at[i] = v[i] * HADAMARD_NORM;
  }
}

// Local memory of a set of work-items that load inputs together.
typedef struct {
  __local float* firsts;    // [SLAB / 128 * ROWS]: the first value of every block of 128, before the transform
  __local float* sums;      // [ROWS]: of all transformed inputs so far
  __local float* scales;    // [ROWS]: of quantised ones
  __local float* eights;    // [SLAB / 8 * ROWS]: work space of quantising
  __local float* sixteens;  // [16 * ROWS]
} inputs_t;

#if ARITHMETIC >= 2
#define QUANTIZER_SIZE(count) (count)
#else
#define QUANTIZER_SIZE(count) 1
#endif
#define DECLARE_INPUTS(sets)                                                                     \
  __local float firsts_[(sets) * (SLAB / 128) * ROWS], sums_[(sets)*ROWS], scales_[(sets)*ROWS], \
      eights_[QUANTIZER_SIZE((sets) * (SLAB / 8) * ROWS)], sixteens_[QUANTIZER_SIZE((sets)*16 * ROWS)];
#define INPUTS_OF(set)                                                               \
  {                                                                                  \
    firsts_ + (set) * (SLAB / 128) * ROWS, sums_ + (set)*ROWS, scales_ + (set)*ROWS, \
        eights_ + (ARITHMETIC >= 2 ? (set) * (SLAB / 8) * ROWS : 0),                 \
        sixteens_ + (ARITHMETIC >= 2 ? (set)*16 * ROWS : 0)                          \
  }

#if ARITHMETIC >= 2
// Turns the slab's values into fractions of each row's largest: activation = scales[m] * q. q is an int8 (four times in
// a word for ARITHMETIC 2, twice in a ushort of a fragment), 16 bits as a high and a low byte, or a half (`halves`).
// sums[m] grows by the sum of what the q stand for. Barriers inside.
ALWAYS_INLINE void quantize_inputs(__local float* slab, uint width, bool halves, bool used, const inputs_t* own,
                                   uint id, uint size) {
  const uint eights = width / 8u * ROWS;
  for (uint t = id; t < eights; t += size) {
    float largest = 0.0f;
    UNROLL
    for (int i = 0; i < 8; ++i) largest = fmax(largest, fabs(slab[SLAB_AT(t / ROWS * 8u + i, t % ROWS)]));
    own->eights[t] = largest;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint t = id; t < 16u * ROWS; t += size) {
    float largest = 0.0f;
    for (uint e = t; e < eights; e += 16u * ROWS) largest = fmax(largest, own->eights[e]);
    own->sixteens[t] = largest;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#if ARITHMETIC == 3 && BYTES == 2
  const float most = halves ? 127.0f : 32512.0f;  // 127 * 256
#else
  const float most = 127.0f;
#endif
  for (uint t = id; t < eights; t += size) {
    const uint m = t % ROWS, eight = t / ROWS;
    float largest = 0.0f;
    for (uint e = 0; e < 16u; ++e) largest = fmax(largest, own->sixteens[e * ROWS + m]);
    const float inverse = largest > 0.0f ? most / largest : 0.0f;
    if (eight == 0) own->scales[m] = largest / most;
    float v[8], sum = 0.0f;
    UNROLL
    for (int i = 0; i < 8; ++i) v[i] = slab[SLAB_AT(eight * 8u + i, m)] * inverse;
    if (!used) continue;
#if ARITHMETIC == 2
    __local uint* to = (__local uint*)slab;
    UNROLL
    for (int i = 0; i < 8; ++i) {
      const float q = rint(v[i]);
      sum += q;
      to[SLAB_AT(eight * 8u + i, m)] = ((uint)(int)q & 0xFFu) * 0x01010101u;
    }
#else
    // Fragment rows of an eight: the high bytes (or halves) of all rows, then the low bytes.
    __local uint* to = (__local uint*)slab + eight * (ROWS * BYTES * 8u);
    UNROLL
    for (int i = 0; i < 8; ++i) {
      if (halves) {
        to[m * 8u + i] = half_bits(v[i]) * 0x00010001u;
      } else {
        const int q = (int)rint(v[i]);
        sum += (float)q;
#if BYTES == 2
        const int low = (int)(char)(q & 0xFF);
        to[m * 8u + i] = (uint)(((q - low) >> 8) & 0xFF) * 0x01010101u;
        to[(ROWS + m) * 8u + i] = (uint)(low & 0xFF) * 0x01010101u;
#else
        to[m * 8u + i] = (uint)(q & 0xFF) * 0x01010101u;
#endif
      }
    }
#endif
    own->eights[t] = sum * largest / most;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint t = id; t < 16u * ROWS; t += size) {
    float sum = 0.0f;
    for (uint e = t; e < eights; e += 16u * ROWS) sum += own->eights[e];
    own->sixteens[t] = sum;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (used && id < ROWS)
    for (uint e = 0; e < 16u; ++e) own->sums[id] += own->sixteens[e * ROWS + id];
}
#endif

// slab[SLAB_AT(k, m)] = (transformed) inputs [base, base + width) of the rows at x[rows[m]], zero beyond `count` rows
// and `matrix.in` inputs, by `size` work-items. width is a multiple of 128. A dense matrix takes its inputs as they
// are. own->sums[m] grows by the sum of the transformed inputs: of a block, that is its first value before the
// transform times sqrt(128).
ALWAYS_INLINE void load_inputs(__local float* slab, __global const uint* arena, const matrix_t* matrix, uint base,
                               uint width, __global const float* x, __local const ulong* rows, uint count, uint id,
                               uint size, const inputs_t* own) {
  const bool transformed = matrix->kind < KIND_DENSE;
  __global const ushort* suh = (__global const ushort*)arena + matrix->suh;
  for (uint t = id; t < width / 16u * ROWS; t += size) {
    const uint m = t % ROWS, j = t / ROWS % 8u, block = t / (8u * ROWS);
    __global const float* row = x + rows[m];
    float v[16];
    UNROLL
    for (int i = 0; i < 16; ++i) {
      const uint k = base + block * BLOCK + j + 8u * i;
      v[i] = m < count && k < matrix->in ? row[k] : 0.0f;
      if (transformed && k < matrix->in) v[i] *= load_half(suh, k);
    }
    if (transformed) {
      if (j == 0) own->firsts[block * ROWS + m] = v[0];
      BUTTERFLIES_16(v)
    }
    UNROLL
    for (int i = 0; i < 16; ++i) slab[SLAB_AT(block * BLOCK + j + 8u * i, m)] = v[i];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (transformed) {
    hadamard_inputs(slab, width / BLOCK, id, size);
    if (BYTES_ARE_FLOATS && SUMS_ARE_BYTES(matrix->kind) && id < ROWS) {
      float sum = 0.0f;
      for (uint block = 0; block < width / BLOCK; ++block) sum += own->firsts[block * ROWS + id];
      own->sums[id] += sum * (1.0f / HADAMARD_NORM);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#if ARITHMETIC >= 2
  quantize_inputs(slab, width, matrix->kind < 16u, IS_QUANTIZED(matrix->kind), own, id, size);
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

// Adds the S partial sums sums[(s * ROWS + m) * 128 + column] in order into those of s = 0, and, for a trellis,
// transforms and scales them: afterwards sums[m * 128 + column] are the block's outputs, bias included.
ALWAYS_INLINE void finish_outputs(__local float* sums, uint parts, __global const uint* arena, const matrix_t* matrix,
                                  uint block, uint id, uint size, const inputs_t* own) {
  const bool transformed = matrix->kind < KIND_DENSE;
  for (uint t = id; t < 8u * ROWS; t += size) {
    const uint m = t / 8u, j = t % 8u;
    float v[16];
    UNROLL
    for (int i = 0; i < 16; ++i) v[i] = sums[m * BLOCK + j + 8u * i];
    for (uint s = 1; s < parts; ++s) {
      UNROLL
      for (int i = 0; i < 16; ++i) v[i] += sums[(s * ROWS + m) * BLOCK + j + 8u * i];
    }
    if (SUMS_ARE_BYTES(matrix->kind)) {
      const float offset = (BYTES_ARE_FLOATS ? MUL1_OFFSET - MUL1_FACTOR * BYTE_OFFSET : MUL1_OFFSET) * own->sums[m];
      const float factor = BYTES_ARE_FLOATS ? MUL1_FACTOR * BYTE_SCALE : MUL1_FACTOR;
      UNROLL
      for (int i = 0; i < 16; ++i) v[i] = fma(v[i], factor, offset);
    }
    if (transformed) {
      BUTTERFLIES_16(v)
    }
    UNROLL
    for (int i = 0; i < 16; ++i) sums[m * BLOCK + j + 8u * i] = v[i];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (transformed) hadamard_sums(sums, id, size);
  barrier(CLK_LOCAL_MEM_FENCE);
  __global const ushort* svh = (__global const ushort*)arena + matrix->svh;
  __global const float* bias = (__global const float*)arena + matrix->bias;
  for (uint t = id; t < BLOCK * ROWS; t += size) {
    const uint column = block * BLOCK + t % BLOCK;
    if (transformed) sums[t] *= load_half(svh, column);
    if (matrix->bias != ~0ul && column < matrix->out) sums[t] += bias[column];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

// Puts a lane's two sums of every row where finish_outputs wants them.
ALWAYS_INLINE void store_sums(__local float* sums, rows_t sum0, rows_t sum1) {
  const uint lane = get_local_id(0);
  __local float* at = sums + (lane >> 3) * 16u + (lane & 7u);
  const float *first = (const float*)&sum0, *second = (const float*)&sum1;
  UNROLL
  for (int m = 0; m < ROWS; ++m) {
    at[m * BLOCK] = first[m];
    at[m * BLOCK + 8u] = second[m];
  }
}

// One block of 128 outputs of ROWS rows, by the whole work-group: afterwards scratch[m * 128 + column] are the outputs.
ALWAYS_INLINE void matrix_block(__local float* scratch, __global const uint* arena, const matrix_t* matrix, uint block,
                                __global const float* x, __local const ulong* rows, uint count, const inputs_t* own) {
  const uint part = UNIFORM((uint)get_local_id(1)), parts = get_local_size(1), id = part * LANES + get_local_id(0);
  rows_t sum0 = (rows_t)(0.0f), sum1 = (rows_t)(0.0f);
  if (id < ROWS) own->sums[id] = 0.0f;
  for (uint base = 0; base < matrix->stored_in; base += SLAB) {
    const uint width = min((uint)SLAB, matrix->stored_in - base);
    load_inputs(scratch, arena, matrix, base, width, x, rows, count, id, LANES * parts, own);
    block_sums(arena, matrix, block, base, part, parts, width / 16u, scratch, own->scales, &sum0, &sum1);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  store_sums(scratch + part * (ROWS * BLOCK), sum0, sum1);
  barrier(CLK_LOCAL_MEM_FENCE);
  finish_outputs(scratch, parts, arena, matrix, block, id, LANES * parts, own);
}
