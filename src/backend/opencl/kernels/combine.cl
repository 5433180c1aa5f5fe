// The weighted results of every row's picks, summed in the order of the picks.
#include "portable.h"
#include "moe_work.h"

SUB_GROUP __kernel void moe_combine(__global uchar *work, const work_t at, __global float *out, const ulong out_offset,
                          const uint out_stride, const uint width) {
  const uint c = get_global_id(0);
  const ulong row = get_global_id(1);
  if (c >= width) return;
  __global const float *results = WORK(const float, at.results) + row * at.per_row * at.results_stride;
  float sum = 0.0f;
  for (uint p = 0; p < at.per_row; ++p) sum += results[(ulong)p * at.results_stride + c];
  out[out_offset + row * out_stride + c] = sum;
}
