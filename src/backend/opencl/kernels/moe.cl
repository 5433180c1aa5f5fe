// Routed and shared experts, unit by unit. Matrices of expert e: gate 3e, up 3e + 1, down 3e + 2. A unit is up to ROWS
// picks of one expert; with ROWS == 1 (decode) unit u is pick u.
#include "portable.h"
#include "trellis.h"
#include "hadamard.h"
#include "moe_work.h"

typedef struct {
  uint expert, first, count;
} unit_t;

// False where there are fewer units.
ALWAYS_INLINE bool find_unit(__global const uchar *work, const work_t *at, uint u, unit_t *unit) {
#if ROWS == 1
  unit->expert = (uint)WORK(const int, at->expert_of)[u];
  unit->first = u;
  unit->count = 1;
  return true;
#else
  if ((int)u >= *WORK(const int, at->unit_count)) return false;
  const int4 found = WORK(const int4, at->units)[u];
  unit->expert = (uint)found.x;
  unit->first = (uint)found.y;
  unit->count = (uint)found.z;
  return true;
#endif
}

ALWAYS_INLINE uint pick_at(__global const uchar *work, const work_t *at, uint place) {
#if ROWS == 1
  return place;
#else
  return (uint)WORK(const int, at->order)[place];
#endif
}

// hidden[pick][column] = activation(gate, up) of 128 columns. Work-group (block, unit).
SUB_GROUP __kernel void moe_gate_up(ARENA_PARAMETERS, __global const matrix_t *matrices, __global uchar *work, const work_t at,
                          __global const float *x, const ulong x_offset, const uint x_stride, const int activation,
                          __local float *scratch, __local float *gates) {
  __local ulong rows[ROWS];
  DECLARE_INPUTS(1)
  const inputs_t inputs = INPUTS_OF(0);
  const uint id = get_local_id(1) * LANES + get_local_id(0), size = LANES * get_local_size(1);
  const uint block = get_group_id(0);
  unit_t unit;
  if (!find_unit(work, &at, get_group_id(1), &unit)) return;
  const matrix_t gate = matrices[3u * unit.expert], up = matrices[3u * unit.expert + 1u];
  if (block * BLOCK >= gate.stored_out) return;
  if (id < ROWS)
    rows[id] = x_offset + (ulong)(pick_at(work, &at, unit.first + min(id, unit.count - 1u)) / at.per_row) * x_stride;
  barrier(CLK_LOCAL_MEM_FENCE);
  matrix_block(scratch, ARENA_OF(gate), &gate, block, x, rows, unit.count, &inputs);
  for (uint t = id; t < BLOCK * unit.count; t += size) gates[t] = scratch[t];
  barrier(CLK_LOCAL_MEM_FENCE);
  matrix_block(scratch, ARENA_OF(up), &up, block, x, rows, unit.count, &inputs);
  __global float *hidden = WORK(float, at.hidden);
  for (uint t = id; t < BLOCK * unit.count; t += size) {
    const uint column = block * BLOCK + t % BLOCK, pick = pick_at(work, &at, unit.first + t / BLOCK);
    if (column < gate.out) hidden[(ulong)pick * at.hidden_stride + column] = gated(activation, gates[t], scratch[t]);
  }
}

// results[pick][column] = weight * down(hidden[pick]). Work-group (block, unit).
SUB_GROUP __kernel void moe_down(ARENA_PARAMETERS, __global const matrix_t *matrices, __global uchar *work, const work_t at,
                       __local float *scratch) {
  __local ulong rows[ROWS];
  DECLARE_INPUTS(1)
  const inputs_t inputs = INPUTS_OF(0);
  const uint id = get_local_id(1) * LANES + get_local_id(0), size = LANES * get_local_size(1);
  const uint block = get_group_id(0);
  unit_t unit;
  if (!find_unit(work, &at, get_group_id(1), &unit)) return;
  if (id < ROWS) rows[id] = (ulong)pick_at(work, &at, unit.first + min(id, unit.count - 1u)) * at.hidden_stride;
  barrier(CLK_LOCAL_MEM_FENCE);
  const matrix_t down = matrices[3u * unit.expert + 2u];
  matrix_block(scratch, ARENA_OF(down), &down, block, WORK(const float, at.hidden), rows, unit.count, &inputs);
  __global float *results = WORK(float, at.results);
  for (uint t = id; t < BLOCK * unit.count; t += size) {
    const uint column = block * BLOCK + t % BLOCK, pick = pick_at(work, &at, unit.first + t / BLOCK);
    if (column < down.out)
      results[(ulong)pick * at.results_stride + column] = WORK(const float, at.weight_of)[pick] * scratch[t];
  }
}
