// A group of linears that share their input, one launch: work-group (block of 128 outputs of some member, ROWS rows).
#include "portable.h"
#define X_SPACE __local
#include "trellis.h"
#include "hadamard.h"

// Where the members' outputs go: mirrors opencl::LinearOutputs. Blocks first[i] .. first[i + 1] - 1 are member i's.
typedef struct {
  ulong offset[8];
  uint stride[8], first[8], matrix[8];
  uint count, reserved;
} outputs_t;

__kernel void trellis_linear(ARENA_PARAMETERS, __global const matrix_t *matrices, __global const float *x,
                             const ulong x_offset, const uint x_stride, const uint x_rows, __global float *out,
                             const outputs_t outputs, __local float *scratch) {
  __local ulong rows[ROWS];
  uint member = 0;
  for (uint i = 1; i < outputs.count; ++i) member = get_group_id(0) >= outputs.first[i] ? i : member;
  const matrix_t matrix = matrices[outputs.matrix[member]];
  const uint block = get_group_id(0) - outputs.first[member];
  const uint row = get_group_id(1) * ROWS, count = min((uint)ROWS, x_rows - row);
  const uint id = get_local_id(1) * LANES + get_local_id(0), size = LANES * get_local_size(1);
  if (id < ROWS) rows[id] = x_offset + (ulong)(row + min(id, count - 1u)) * x_stride;
  barrier(CLK_LOCAL_MEM_FENCE);
  matrix_block(scratch, ARENA_OF(matrix), &matrix, block, x, rows, count);
  for (uint t = id; t < BLOCK * count; t += size) {
    const uint column = block * BLOCK + t % BLOCK;
    if (column < matrix.out)
      out[outputs.offset[member] + (ulong)(row + t / BLOCK) * outputs.stride[member] + column] = scratch[t];
  }
}
