// Gated delta net: convolution and norms of all rows in parallel, the recurrence with the state in registers, the gated
// norm.
#include "backend/cuda/delta_net.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

namespace {

__device__ __forceinline__ float element(const MatrixView& m, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * m.stride + column;
  return m.f32 != 0 ? static_cast<const float*>(m.data)[at] : __half2float(static_cast<const __half*>(m.data)[at]);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(~0u, v, step);
  return v;
}

/// The convolution's input `back` tokens before row t of the sequence.
__device__ __forceinline__ float conv_input(const DeltaNetParams& p, int first, int t, int back, const float* window,
                                            int channel) {
  if (back <= t) return element(p.qkv, first + t - back, channel);
  return window[static_cast<std::int64_t>(p.kernel - 1 + t - back) * p.channels + channel];
}

/// A warp a head: convolution, SiLU, the L2 norm of q and k heads, the gates of v heads.
__global__ void __launch_bounds__(128) convolve(const __grid_constant__ DeltaNetParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int row = blockIdx.y, head = static_cast<int>(blockIdx.x * 4 + (threadIdx.x >> 5)), lane = threadIdx.x & 31;
  if (head >= 2 * p.key_heads + p.value_heads) return;
  const int sequence = p.row_sequence[row], first = p.row_start[sequence], t = row - first;
  const float* window = p.window + p.slots[sequence] * p.window_stride;
  const bool is_key = head < 2 * p.key_heads;
  const int width = is_key ? p.key_dim : p.value_dim;
  const int start = is_key ? head * p.key_dim : 2 * p.key_heads * p.key_dim + (head - 2 * p.key_heads) * p.value_dim;
  float value[8], square = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 32 >= width) break;
    const int channel = start + i * 32 + lane;
    float sum = 0;
    for (int tap = 0; tap < p.kernel; ++tap)
      sum += p.conv_weight[channel * p.kernel + tap] * conv_input(p, first, t, p.kernel - 1 - tap, window, channel);
    value[i] = sum / (1.0f + __expf(-sum));
    square += value[i] * value[i];
  }
  float scale = 1;
  if (is_key) {
    scale = rsqrtf(warp_sum(square) + 1e-6f);
    if (head < p.key_heads) scale *= rsqrtf(static_cast<float>(p.key_dim));
  } else if (lane == 0) {
    const int h = head - 2 * p.key_heads;
    const float x = element(p.a, row, h) + p.dt_bias[h], softplus = x > 20.0f ? x : log1pf(expf(x));
    float* gates = p.mixed + static_cast<std::int64_t>(p.rows) * p.channels;
    gates[row * p.value_heads + h] = expf(-expf(p.a_log[h]) * softplus);
    gates[(p.rows + row) * p.value_heads + h] = 1.0f / (1.0f + expf(-element(p.b, row, h)));
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 32 >= width) break;
    p.mixed[static_cast<std::int64_t>(row) * p.channels + start + i * 32 + lane] = value[i] * scale;
  }
}

/// A warp owns eight columns of a head's state: lane (c = lane % 8, part = lane / 8) keeps a quarter of column c's keys
/// in registers.
template <int kKeysPerLane>
__global__ void __launch_bounds__(128) recur(const __grid_constant__ DeltaNetParams p) {
  constexpr int kKeys = 4 * kKeysPerLane, kPart = kKeysPerLane + 4;  // padded: the four parts read different banks
  __shared__ __align__(16) float keys[4][2][4 * kPart];
  allow_next_kernel();
  const int sequence = blockIdx.z, head = blockIdx.y, warp = threadIdx.x >> 5, lane = threadIdx.x & 31,
            part = lane >> 3;
  const int column = static_cast<int>(blockIdx.x * 32 + warp * 8 + (lane & 7));
  wait_for_previous_kernel();
  const int first = p.row_start[sequence], rows = p.row_start[sequence + 1] - first;
  const std::int64_t slot = p.slots[sequence];
  if (rows <= 0) return;

  // The window moves on: its last inputs may reach back into itself, oldest first.
  float* window = p.window + slot * p.window_stride;
  const int per_block = (p.channels + gridDim.x * gridDim.y - 1) / (gridDim.x * gridDim.y),
            from = (blockIdx.y * gridDim.x + blockIdx.x) * per_block;
  for (int channel = from + static_cast<int>(threadIdx.x); channel < min(from + per_block, p.channels);
       channel += 128) {
    for (int i = 0; i < p.kernel - 1; ++i)
      window[static_cast<std::int64_t>(i) * p.channels + channel] =
          conv_input(p, first, rows - 1, p.kernel - 2 - i, window, channel);
  }

  float* state = p.state + slot * p.state_stride +
                 (static_cast<std::int64_t>(head) * kKeys + part * kKeysPerLane) * p.value_dim + column;
  float s[kKeysPerLane];
#pragma unroll
  for (int i = 0; i < kKeysPerLane; ++i) s[i] = state[static_cast<std::int64_t>(i) * p.value_dim];

  const int key_head = head / (p.value_heads / p.key_heads), key_width = p.key_heads * kKeys;
  const float* gates = p.mixed + static_cast<std::int64_t>(p.rows) * p.channels;
  float* result = p.mixed + static_cast<std::int64_t>(p.rows) * (p.channels + 2 * p.value_heads);
  float* k_shared = keys[warp][0];
  float* q_shared = keys[warp][1];
  // Each lane brings kKeys / 32 consecutive values of q and k for the warp, one token ahead.
  constexpr int kLoad = kKeys / 32;
  float q_next[kLoad], k_next[kLoad], v_next, alpha_next, beta_next;
  const auto fetch = [&](int t) {
    const std::int64_t row = first + t;
    const float* mixed = p.mixed + row * p.channels;
#pragma unroll
    for (int i = 0; i < kLoad; ++i) {
      q_next[i] = mixed[key_head * kKeys + lane * kLoad + i];
      k_next[i] = mixed[key_width + key_head * kKeys + lane * kLoad + i];
    }
    v_next = mixed[2 * key_width + head * p.value_dim + column];
    alpha_next = gates[row * p.value_heads + head];
    beta_next = gates[(p.rows + row) * p.value_heads + head];
  };
  fetch(0);
  for (int t = 0; t < rows; ++t) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kLoad; ++i) {
      const int at = lane * kLoad + i, to = at / kKeysPerLane * kPart + at % kKeysPerLane;
      q_shared[to] = q_next[i];
      k_shared[to] = k_next[i];
    }
    const float v = v_next, alpha = alpha_next, beta = beta_next;
    __syncwarp();
    if (t + 1 < rows) fetch(t + 1);
    float read = 0, out = 0, dot = 0;
    float k[kKeysPerLane];
#pragma unroll
    for (int i = 0; i < kKeysPerLane; i += 4) {
      const float4 k4 = *reinterpret_cast<const float4*>(k_shared + part * kPart + i),
                   q4 = *reinterpret_cast<const float4*>(q_shared + part * kPart + i);
      k[i] = k4.x;
      k[i + 1] = k4.y;
      k[i + 2] = k4.z;
      k[i + 3] = k4.w;
      read += s[i] * k4.x + s[i + 1] * k4.y + s[i + 2] * k4.z + s[i + 3] * k4.w;
      out += s[i] * q4.x + s[i + 1] * q4.y + s[i + 2] * q4.z + s[i + 3] * q4.w;
      dot += k4.x * q4.x + k4.y * q4.y + k4.z * q4.z + k4.w * q4.w;
    }
#pragma unroll
    for (int step = 8; step < 32; step <<= 1) {
      read += __shfl_xor_sync(~0u, read, step);
      out += __shfl_xor_sync(~0u, out, step);
      dot += __shfl_xor_sync(~0u, dot, step);
    }
    const float d = beta * (v - alpha * read);
#pragma unroll
    for (int i = 0; i < kKeysPerLane; ++i) s[i] = alpha * s[i] + k[i] * d;
    if (part == 0)
      result[static_cast<std::int64_t>(first + t) * p.value_heads * p.value_dim + head * p.value_dim + column] =
          alpha * out + dot * d;
  }
#pragma unroll
  for (int i = 0; i < kKeysPerLane; ++i) state[static_cast<std::int64_t>(i) * p.value_dim] = s[i];
}

/// A warp a head: out = norm(result) * silu(z).
__global__ void __launch_bounds__(128) gated_norm(const __grid_constant__ DeltaNetParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.y;
  const int head = static_cast<int>(blockIdx.x * 4 + (threadIdx.x >> 5)), lane = threadIdx.x & 31;
  if (head >= p.value_heads) return;
  const float* result = p.mixed + static_cast<std::int64_t>(p.rows) * (p.channels + 2 * p.value_heads) +
                        (row * p.value_heads + head) * p.value_dim;
  float value[8], square = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 32 >= p.value_dim) break;
    value[i] = result[i * 32 + lane];
    square += value[i] * value[i];
  }
  const float scale = rsqrtf(warp_sum(square) / static_cast<float>(p.value_dim) + p.eps);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 32 >= p.value_dim) break;
    const int at = i * 32 + lane, column = head * p.value_dim + at;
    const float z = element(p.z, row, column), y = value[i] * scale * p.norm_weight[at] * (z / (1.0f + __expf(-z)));
    if (p.out.f32 != 0) {
      static_cast<float*>(p.out.data)[row * p.out.stride + column] = y;
    } else {
      static_cast<__half*>(p.out.data)[row * p.out.stride + column] = __float2half_rn(y);
    }
  }
}

}  // namespace

void launch_delta_net(const LaunchContext& context, const DeltaNetParams& params) {
  const auto rows = static_cast<unsigned>(params.rows);
  const auto heads = static_cast<unsigned>(2 * params.key_heads + params.value_heads);
  launch(context, convolve, dim3((heads + 3) / 4, rows), 128, 0, params);
  const dim3 grid(static_cast<unsigned>(params.value_dim / 32), static_cast<unsigned>(params.value_heads),
                  static_cast<unsigned>(params.sequences));
  switch (params.key_dim) {
    case 32:
      launch(context, recur<8>, grid, 128, 0, params);
      break;
    case 64:
      launch(context, recur<16>, grid, 128, 0, params);
      break;
    default:
      launch(context, recur<32>, grid, 128, 0, params);
      break;
  }
  launch(context, gated_norm, dim3((static_cast<unsigned>(params.value_heads) + 3) / 4, rows), 128, 0, params);
}

}  // namespace pergola::cuda
