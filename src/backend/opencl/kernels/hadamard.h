// The orthonormal 128-point Hadamard transform in local memory, in two passes over registers: 16 values with stride 8,
// then 8 adjacent ones.

#define HADAMARD_NORM 0.08838834764831845f

// One stage of butterflies on `count` values in registers. Stages are written out below: a loop over them would index
// the values at run time, which sends them to memory.
#define BUTTERFLY_STAGE(values, count, span)            \
  UNROLL                                                \
  for (int i = 0; i < (count) / 2; ++i) {               \
    const int low = i % (span) + i / (span) * 2 * (span); \
    const float a = values[low], b = values[low + (span)]; \
    values[low] = a + b;                                \
    values[low + (span)] = a - b;                       \
  }
#define BUTTERFLIES_8(values)    \
  BUTTERFLY_STAGE(values, 8, 1)  \
  BUTTERFLY_STAGE(values, 8, 2)  \
  BUTTERFLY_STAGE(values, 8, 4)
#define BUTTERFLIES_16(values)    \
  BUTTERFLY_STAGE(values, 16, 1)  \
  BUTTERFLY_STAGE(values, 16, 2)  \
  BUTTERFLY_STAGE(values, 16, 4)  \
  BUTTERFLY_STAGE(values, 16, 8)

// The second pass and the norm over `blocks` blocks of ROWS rows, by `size` work-items: element k of row m of a block
// lies at block * 128 * ROWS + k * k_step + m * m_step.
ALWAYS_INLINE void hadamard_second_pass(__local float *values, uint blocks, uint k_step, uint m_step, uint id,
                                        uint size) {
  for (uint t = id; t < blocks * 16u * ROWS; t += size) {
    const uint m = t % ROWS, j = t / ROWS % 16u, block = t / (16u * ROWS);
    __local float *at = values + block * (BLOCK * ROWS) + j * 8u * k_step + m * m_step;
    float v[8];
    UNROLL
    for (int i = 0; i < 8; ++i) v[i] = at[i * k_step];
    BUTTERFLIES_8(v)
    UNROLL
    for (int i = 0; i < 8; ++i) at[i * k_step] = v[i] * HADAMARD_NORM;
  }
}

// slab[k * ROWS + m] = (transformed) inputs [base, base + width) of the rows at x[rows[m]], zero beyond `count` rows and
// `matrix.in` inputs, by `size` work-items. width is a multiple of 128. A dense matrix takes its inputs as they are.
// input_sums[m] grows by the sum of the transformed inputs: of a block, that is its first value before the transform
// times sqrt(128). `firsts` holds those.
ALWAYS_INLINE void load_inputs(__local float *slab, __global const uint *arena, const matrix_t *matrix, uint base,
                               uint width, __global const float *x, __local const ulong *rows, uint count, uint id,
                               uint size, __local float *firsts, __local float *input_sums) {
  const bool transformed = matrix->kind < KIND_DENSE;
  __global const ushort *suh = (__global const ushort *)arena + matrix->suh;
  for (uint t = id; t < width / 16u * ROWS; t += size) {
    const uint m = t % ROWS, j = t / ROWS % 8u, block = t / (8u * ROWS);
    __global const float *row = x + rows[m];
    float v[16];
    UNROLL
    for (int i = 0; i < 16; ++i) {
      const uint k = base + block * BLOCK + j + 8u * i;
      v[i] = m < count && k < matrix->in ? row[k] : 0.0f;
      if (transformed && k < matrix->in) v[i] *= load_half(suh, k);
    }
    if (transformed) {
      if (j == 0) firsts[block * ROWS + m] = v[0];
      BUTTERFLIES_16(v)
    }
    UNROLL
    for (int i = 0; i < 16; ++i) slab[(block * BLOCK + j + 8u * i) * ROWS + m] = v[i];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (transformed) {
    hadamard_second_pass(slab, width / BLOCK, ROWS, 1u, id, size);
    if (SUMS_ARE_BYTES(matrix->kind) && id < ROWS) {
      float sum = 0.0f;
      for (uint block = 0; block < width / BLOCK; ++block) sum += firsts[block * ROWS + id];
      input_sums[id] += sum * (1.0f / HADAMARD_NORM);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

// Adds the S partial sums sums[(s * ROWS + m) * 128 + column] in order into those of s = 0, and, for a trellis,
// transforms and scales them: afterwards sums[m * 128 + column] are the block's outputs, bias included.
ALWAYS_INLINE void finish_outputs(__local float *sums, uint parts, __global const uint *arena, const matrix_t *matrix,
                                  uint block, uint id, uint size, __local const float *input_sums) {
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
      const float offset = (MUL1_OFFSET - MUL1_FACTOR * BYTE_OFFSET) * input_sums[m];
      UNROLL
      for (int i = 0; i < 16; ++i) v[i] = fma(v[i], MUL1_FACTOR * BYTE_SCALE, offset);
    }
    if (transformed) {
      BUTTERFLIES_16(v)
    }
    UNROLL
    for (int i = 0; i < 16; ++i) sums[m * BLOCK + j + 8u * i] = v[i];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (transformed) hadamard_second_pass(sums, 1u, 1u, BLOCK, id, size);
  barrier(CLK_LOCAL_MEM_FENCE);
  __global const ushort *svh = (__global const ushort *)arena + matrix->svh;
  __global const float *bias = (__global const float *)arena + matrix->bias;
  for (uint t = id; t < BLOCK * ROWS; t += size) {
    const uint column = block * BLOCK + t % BLOCK;
    if (transformed) sums[t] *= load_half(svh, column);
    if (matrix->bias != ~0ul && column < matrix->out) sums[t] += bias[column];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

// Puts a lane's two sums of every row where finish_outputs wants them.
ALWAYS_INLINE void store_sums(__local float *sums, rows_t sum0, rows_t sum1) {
  const uint lane = get_local_id(0);
  __local float *at = sums + (lane >> 3) * 16u + (lane & 7u);
  const float *first = (const float *)&sum0, *second = (const float *)&sum1;
  UNROLL
  for (int m = 0; m < ROWS; ++m) {
    at[m * BLOCK] = first[m];
    at[m * BLOCK + 8u] = second[m];
  }
}

// Local memory that matrix_block needs beside its scratch, for `sets` independent sets of work-items.
#define INPUT_SUMS(sets) __local float firsts[(sets) * (SLAB / 128) * ROWS], input_sums[(sets) * ROWS];

// One block of 128 outputs of ROWS rows, by the whole work-group: afterwards scratch[m * 128 + column] are the outputs.
ALWAYS_INLINE void matrix_block(__local float *scratch, __global const uint *arena, const matrix_t *matrix, uint block,
                                __global const float *x, __local const ulong *rows, uint count,
                                __local float *firsts, __local float *input_sums) {
  const uint part = get_local_id(1), parts = get_local_size(1), id = part * LANES + get_local_id(0);
  rows_t sum0 = (rows_t)(0.0f), sum1 = (rows_t)(0.0f);
  if (id < ROWS) input_sums[id] = 0.0f;
  for (uint base = 0; base < matrix->stored_in; base += SLAB) {
    const uint width = min((uint)SLAB, matrix->stored_in - base);
    load_inputs(scratch, arena, matrix, base, width, x, rows, count, id, LANES * parts, firsts, input_sums);
    block_sums(arena, matrix, block, base, part, parts, width / 16u, scratch, &sum0, &sum1);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  store_sums(scratch + part * (ROWS * BLOCK), sum0, sum1);
  barrier(CLK_LOCAL_MEM_FENCE);
  finish_outputs(scratch, parts, arena, matrix, block, id, LANES * parts, input_sums);
}
