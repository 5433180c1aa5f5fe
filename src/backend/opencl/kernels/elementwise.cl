// Operations on whole rows or single values.
#include "portable.h"

// out[r] = scale * table[ids[r]]; type 0 f32, 1 f16, 2 bf16.
SUB_GROUP __kernel void embed(__global const uint *table, const uint type, __global const int *ids, const ulong ids_offset,
                    const float scale, __global float *out, const ulong out_offset, const uint out_stride,
                    const uint width) {
  const uint c = get_global_id(0), r = get_global_id(1);
  if (c >= width) return;
  const ulong at = (ulong)ids[ids_offset + r] * width + c;
  float value;
  if (type == 0)
    value = ((__global const float *)table)[at];
  else if (type == 1)
    value = load_half((__global const ushort *)table, at);
  else
    value = as_float((uint)((__global const ushort *)table)[at] << 16);
  out[out_offset + (ulong)r * out_stride + c] = scale * value;
}

// x += delta when `adds`; out = x * rsqrt(mean(x^2) + eps) * weight. A work-group of 128 a row; out may be x.
SUB_GROUP __kernel void rms_norm(__global float *x, const ulong x_offset, const uint x_stride, __global const float *delta,
                       const ulong delta_offset, const uint delta_stride, const int adds, __global const float *weight,
                       const ulong weight_offset, const float eps, __global float *out, const ulong out_offset,
                       const uint out_stride, const uint width) {
  __local float scratch[128];
  const uint id = get_local_id(0);
  const ulong r = get_group_id(0);
  float sum = 0.0f;
  for (uint c = id; c < width; c += 128u) {
    const ulong at = x_offset + r * x_stride + c;
    float value = x[at];
    if (adds) x[at] = value += delta[delta_offset + r * delta_stride + c];
    sum = fma(value, value, sum);
  }
  const float scale = 1.0f / sqrt(group_sum(sum, scratch, id, 128u) / (float)width + eps);
  for (uint c = id; c < width; c += 128u)
    out[out_offset + r * out_stride + c] = x[x_offset + r * x_stride + c] * scale * weight[weight_offset + c];
}

SUB_GROUP __kernel void gated_activation(const int activation, __global const float *gate, const ulong gate_offset,
                               const uint gate_stride, __global const float *up, const ulong up_offset,
                               const uint up_stride, __global float *out, const ulong out_offset, const uint out_stride,
                               const uint width) {
  const uint c = get_global_id(0);
  const ulong r = get_global_id(1);
  if (c >= width) return;
  out[out_offset + r * out_stride + c] =
      gated(activation, gate[gate_offset + r * gate_stride + c], up[up_offset + r * up_stride + c]);
}

SUB_GROUP __kernel void soft_cap(__global float *x, const ulong offset, const uint stride, const float cap, const uint width) {
  const uint c = get_global_id(0);
  const ulong at = offset + (ulong)get_global_id(1) * stride + c;
  if (c < width) x[at] = cap * tanh(x[at] / cap);
}

// Rows of `width` units of 32 bits, or of 8 where rows are no whole number of words.
SUB_GROUP __kernel void gather_words(__global const uint *x, const ulong offset, const ulong stride, __global const int *indices,
                           const ulong indices_offset, __global uint *out, const ulong out_offset,
                           const ulong out_stride, const ulong width) {
  const ulong c = get_global_id(0), r = get_global_id(1);
  if (c < width) out[out_offset + r * out_stride + c] = x[offset + indices[indices_offset + r] * stride + c];
}

SUB_GROUP __kernel void gather_bytes(__global const uchar *x, const ulong offset, const ulong stride, __global const int *indices,
                           const ulong indices_offset, __global uchar *out, const ulong out_offset,
                           const ulong out_stride, const ulong width) {
  const ulong c = get_global_id(0), r = get_global_id(1);
  if (c < width) out[out_offset + r * out_stride + c] = x[offset + indices[indices_offset + r] * stride + c];
}
