// Dense linears: a work-group of 64 makes one output of up to 4 rows, its lanes along the inputs.
#include "portable.h"

SUB_GROUP __kernel void dense_linear(__global const uint *weights, const ulong weights_offset, const uint type, const ulong bias,
                           __global const float *x, const ulong x_offset, const uint x_stride, const uint in,
                           const uint x_rows, __global float *out, const ulong out_offset, const uint out_stride) {
  __local float scratch[64];
  const uint lane = get_local_id(0), column = get_group_id(0), row = get_group_id(1) * 4u;
  const ulong first = weights_offset + (ulong)column * in;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (uint k = lane; k < in; k += 64u) {
    float weight;
    if (type == 0)
      weight = ((__global const float *)weights)[first + k];
    else if (type == 1)
      weight = load_half((__global const ushort *)weights, first + k);
    else
      weight = as_float((uint)((__global const ushort *)weights)[first + k] << 16);
    UNROLL
    for (int m = 0; m < 4; ++m)
      if (row + m < x_rows) sums[m] = fma(weight, x[x_offset + (ulong)(row + m) * x_stride + k], sums[m]);
  }
  const float added = bias != ~0ul ? ((__global const float *)weights)[bias + column] : 0.0f;
  UNROLL
  for (int m = 0; m < 4; ++m) {
    const float sum = group_sum(sums[m], scratch, lane, 64u);
    if (lane == 0 && row + m < x_rows) out[out_offset + (ulong)(row + m) * out_stride + column] = sum + added;
  }
}
