// The gated delta rule. KEY_DIM is the width of a key head.
#include "portable.h"

// One layer and step: mirrors opencl::DeltaNetShape. Element offsets.
typedef struct {
  ulong qkv, z, b, a, out, window, state, row_sequence, row_start, slots, conv_weight, a_log, dt_bias, norm_weight;
  ulong window_stride, state_stride;
  uint qkv_stride, z_stride, b_stride, a_stride, out_stride;
  uint key_heads, value_heads, value_dim, taps, channels;
  float eps, reserved;
} shape_t;

#define L2_EPSILON 1e-6f

// The convolution's input `back` tokens before row t of a piece that starts at row `first`.
ALWAYS_INLINE float input_at(const shape_t *s, __global const float *qkv, __global const float *window, uint first,
                             uint slot, int t, int back, uint channel) {
  if (back <= t) return qkv[s->qkv + (ulong)(first + t - back) * s->qkv_stride + channel];
  return window[s->window + slot * s->window_stride + (ulong)((int)s->taps - 1 + t - back) * s->channels + channel];
}

// mixed[row][channel] = silu(convolution), q and k heads then L2-normalised. Work-group (row, KEY_DIM channels).
SUB_GROUP __kernel void delta_net_convolve(const shape_t s, __global const float *qkv, __global const float *window,
                                 __global const int *row_sequence, __global const int *row_start,
                                 __global const int *slots, __global const float *weights, __global float *mixed) {
  __local float scratch[KEY_DIM];
  const uint lane = get_local_id(0), row = get_group_id(0), head = get_group_id(1);
  const uint channel = head * KEY_DIM + lane;
  const uint sequence = row_sequence[s.row_sequence + row], first = row_start[s.row_start + sequence];
  const uint slot = slots[s.slots + sequence];
  float sum = 0.0f;
  if (channel < s.channels) {
    for (uint tap = 0; tap < s.taps; ++tap)
      sum = fma(weights[s.conv_weight + (ulong)channel * s.taps + tap],
                input_at(&s, qkv, window, first, slot, (int)(row - first), (int)(s.taps - 1u - tap), channel), sum);
  }
  float value = sum * sigmoid(sum);
  const float square = group_sum(value * value, scratch, lane, KEY_DIM);
  if (head < 2u * s.key_heads) {
    value /= sqrt(square + L2_EPSILON);
    if (head < s.key_heads) value /= sqrt((float)KEY_DIM);
  }
  if (channel < s.channels) mixed[(ulong)row * s.channels + channel] = value;
}

// Keeps the last taps - 1 inputs of every sequence, oldest first: an entry is read before a later one overwrites it.
SUB_GROUP __kernel void delta_net_window(const shape_t s, __global const float *qkv, __global float *window,
                               __global const int *row_start, __global const int *slots) {
  const uint channel = get_global_id(0), sequence = get_global_id(1);
  if (channel >= s.channels) return;
  const uint first = row_start[s.row_start + sequence], rows = row_start[s.row_start + sequence + 1u] - first;
  const uint slot = slots[s.slots + sequence];
  if (rows == 0) return;
  for (uint i = 0; i + 1u < s.taps; ++i)
    window[s.window + slot * s.window_stride + (ulong)i * s.channels + channel] =
        input_at(&s, qkv, window, first, slot, (int)rows - 1, (int)(s.taps - 2u - i), channel);
}

#define GROUPS 8
#define KEYS_EACH (KEY_DIM / GROUPS)

// The recurrence of 32 value columns of one head over one sequence. Work-group (column tile, head, sequence) of (32, 8):
// lane x owns a column, y a run of keys; the state stays in registers.
SUB_GROUP __kernel void delta_net_recur(const shape_t s, __global const float *mixed, __global const float *b,
                              __global const float *a, __global float *state, __global const int *row_start,
                              __global const int *slots, __global const float *a_log, __global const float *dt_bias,
                              __global float *out) {
  __local float reads[GROUPS][32];
  const uint x = get_local_id(0), y = get_local_id(1), head = get_group_id(1), sequence = get_group_id(2);
  const uint column = get_group_id(0) * 32u + x, value_dim = s.value_dim;
  const bool live = column < value_dim;
  const uint key_head = head / (s.value_heads / s.key_heads), key_width = s.key_heads * KEY_DIM;
  const uint first = row_start[s.row_start + sequence], rows = row_start[s.row_start + sequence + 1u] - first;
  const ulong slot = slots[s.slots + sequence];
  __global float *own = state + s.state + slot * s.state_stride + (ulong)head * KEY_DIM * value_dim +
                        (ulong)y * KEYS_EACH * value_dim + (live ? column : 0u);
  float cells[KEYS_EACH];
  UNROLL
  for (int i = 0; i < KEYS_EACH; ++i) cells[i] = own[i * value_dim];
  const float rate = -exp(a_log[s.a_log + head]), bias = dt_bias[s.dt_bias + head];
  for (uint t = 0; t < rows; ++t) {
    const ulong row = first + t;
    const float raw = a[s.a + row * s.a_stride + head] + bias;
    const float alpha = exp(rate * (raw > 20.0f ? raw : log1p(exp(raw))));
    const float beta = sigmoid(b[s.b + row * s.b_stride + head]);
    __global const float *q = mixed + row * s.channels + key_head * KEY_DIM + y * KEYS_EACH;
    __global const float *k = q + key_width;
    const float v = mixed[row * s.channels + 2u * key_width + head * value_dim + (live ? column : 0u)];
    float read = 0.0f;
    UNROLL
    for (int i = 0; i < KEYS_EACH; ++i) read = fma(k[i], cells[i], read);
    reads[y][x] = read;
    barrier(CLK_LOCAL_MEM_FENCE);
    read = 0.0f;
    UNROLL
    for (int i = 0; i < GROUPS; ++i) read += reads[i][x];
    barrier(CLK_LOCAL_MEM_FENCE);
    const float delta = beta * (v - alpha * read);
    float answer = 0.0f;
    UNROLL
    for (int i = 0; i < KEYS_EACH; ++i) {
      cells[i] = fma(alpha, cells[i], k[i] * delta);
      answer = fma(q[i], cells[i], answer);
    }
    reads[y][x] = answer;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (y == 0 && live) {
      answer = 0.0f;
      UNROLL
      for (int i = 0; i < GROUPS; ++i) answer += reads[i][x];
      out[s.out + row * s.out_stride + (ulong)head * value_dim + column] = answer;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (live) {
    UNROLL
    for (int i = 0; i < KEYS_EACH; ++i) own[i * value_dim] = cells[i];
  }
}

// out = norm(out) * silu(z) per head, in place. Work-group of 32 (row, head).
SUB_GROUP __kernel void delta_net_norm(const shape_t s, __global const float *z, __global const float *weight,
                             __global float *out) {
  __local float scratch[32];
  const uint lane = get_local_id(0), head = get_group_id(1);
  const ulong row = get_group_id(0), at = s.out + row * s.out_stride + (ulong)head * s.value_dim;
  float sum = 0.0f;
  for (uint i = lane; i < s.value_dim; i += 32u) sum = fma(out[at + i], out[at + i], sum);
  const float scale = 1.0f / sqrt(group_sum(sum, scratch, lane, 32u) / (float)s.value_dim + s.eps);
  for (uint i = lane; i < s.value_dim; i += 32u) {
    const float gate = z[s.z + row * s.z_stride + (ulong)head * s.value_dim + i];
    out[at + i] = out[at + i] * scale * weight[s.norm_weight + i] * gate * sigmoid(gate);
  }
}
