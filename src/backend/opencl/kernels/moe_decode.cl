// The down projections of one row's experts and their weighted sum in one launch: work-group (block of 128 outputs,
// row), work-items (64, S). In every round y-group s takes one pick; the widest expert has `inner` inputs.
#include "portable.h"
#include "trellis.h"
#include "hadamard.h"
#include "moe_work.h"

#define MOST_PARTS 16

SUB_GROUP __kernel void moe_decode_down(ARENA_PARAMETERS, __global const matrix_t *matrices, __global uchar *work,
                              const work_t at, const uint inner, __global float *out, const ulong out_offset,
                              const uint out_stride, __local float *slabs, __local float *sums) {
  __local ulong starts[MOST_PARTS];
  DECLARE_INPUTS(MOST_PARTS)
  const uint lane = get_local_id(0), part = UNIFORM((uint)get_local_id(1)), parts = get_local_size(1);
  const uint block = get_group_id(0), row = get_group_id(1);
  __global const float *hidden = WORK(const float, at.hidden);
  __local float *slab = slabs + part * SLAB;
  const inputs_t inputs = INPUTS_OF(part);
  for (uint round = 0; round < at.per_row; round += parts) {
    const bool live = round + part < at.per_row;
    const uint pick = row * at.per_row + min(round + part, at.per_row - 1u);
    const matrix_t down = matrices[3 * WORK(const int, at.expert_of)[pick] + 2];
    __global const uint *arena = ARENA_OF(down);
    if (lane == 0) {
      starts[part] = (ulong)pick * at.hidden_stride;
      *inputs.sums = 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum0 = 0.0f, sum1 = 0.0f;
    for (uint base = 0; base < inner; base += SLAB) {
      const uint width = min((uint)SLAB, inner - base);
      load_inputs(slab, arena, &down, base, width, hidden, starts + part, 1u, lane, LANES, &inputs);
      if (live && base < down.stored_in)
        block_sums(arena, &down, block, base, 0u, 1u, min(width, down.stored_in - base) / 16u, slab, inputs.scales,
                   &sum0, &sum1);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    store_sums(slab, sum0, sum1);
    barrier(CLK_LOCAL_MEM_FENCE);
    finish_outputs(slab, 1u, arena, &down, block, lane, LANES, &inputs);
    if (live) {
      const float weight = WORK(const float, at.weight_of)[pick];
      for (uint t = lane; t < BLOCK; t += LANES) sums[(round + part) * BLOCK + t] = weight * slab[t];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const uint width = matrices[2].out;
  for (uint t = part * LANES + lane; t < BLOCK; t += LANES * parts) {
    float sum = 0.0f;
    for (uint p = 0; p < at.per_row; ++p) sum += sums[p * BLOCK + t];
    const uint column = block * BLOCK + t;
    if (column < width) out[out_offset + (ulong)row * out_stride + column] = sum;
  }
}
