// A group of linears that share their input, one launch: work-group (block of 128 outputs of some member, ROWS rows).
#include "portable.h"
#include "trellis.h"
#include "hadamard.h"

// Where the members' outputs go: mirrors opencl::LinearOutputs. Blocks first[i] .. first[i + 1] - 1 are member i's.
typedef struct {
  ulong offset[8];
  uint stride[8], first[8], matrix[8];
  uint count, reserved;
} outputs_t;

SUB_GROUP __kernel void trellis_linear(ARENA_PARAMETERS, __global const matrix_t *matrices, __global const float *x,
                             const ulong x_offset, const uint x_stride, const uint x_rows, __global float *out,
                             const outputs_t outputs, __local float *scratch) {
  __local ulong rows[ROWS];
  DECLARE_INPUTS(1)
  const inputs_t inputs = INPUTS_OF(0);
  // Constant indices: a run-time index would send the argument to memory.
  ulong out_offset = outputs.offset[0];
  uint out_stride = outputs.stride[0], first = 0, index = outputs.matrix[0];
  UNROLL
  for (int i = 1; i < 8; ++i) {
    const bool here = i < outputs.count && get_group_id(0) >= outputs.first[i];
    out_offset = here ? outputs.offset[i] : out_offset;
    out_stride = here ? outputs.stride[i] : out_stride;
    first = here ? outputs.first[i] : first;
    index = here ? outputs.matrix[i] : index;
  }
  const matrix_t matrix = matrices[index];
  const uint block = get_group_id(0) - first;
  const uint row = get_group_id(1) * ROWS, count = min((uint)ROWS, x_rows - row);
  const uint id = get_local_id(1) * LANES + get_local_id(0), size = LANES * get_local_size(1);
  if (id < ROWS) rows[id] = x_offset + (ulong)(row + min(id, count - 1u)) * x_stride;
  barrier(CLK_LOCAL_MEM_FENCE);
  matrix_block(scratch, ARENA_OF(matrix), &matrix, block, x, rows, count, &inputs);
  for (uint t = id; t < BLOCK * count; t += size) {
    const uint column = block * BLOCK + t % BLOCK;
    if (column < matrix.out)
      out[out_offset + (ulong)(row + t / BLOCK) * out_stride + column] = scratch[t];
  }
}
