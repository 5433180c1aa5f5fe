// Gated delta net: convolution and norms of all rows in parallel, the recurrence with the state in registers, the gated
// norm.
#include "backend/cuda/delta_net.h"

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/delta_net_kernels.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

namespace {

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

/// A warp owns four columns of a head's state: lane (c = lane % 4, part = lane / 4) keeps an eighth of column c's keys
/// in registers. What the tokens bring comes by asynchronous copies, kTokens at a time and one such piece ahead.
template <int kKeysPerLane>
__global__ void __launch_bounds__(256) recur(const __grid_constant__ DeltaNetParams p) {
  constexpr int kTokens = 16, kParts = 8, kKeys = kParts * kKeysPerLane, kThreads = 256;
  constexpr int kPart = kKeysPerLane + 4;  // padded: the parts read different banks
  struct Piece {
    float q[kTokens][kParts * kPart], k[kTokens][kParts * kPart], v[kTokens][32], alpha[kTokens], beta[kTokens];
  };
  __shared__ __align__(16) Piece pieces[2];
  allow_next_kernel();
  const int sequence = blockIdx.z, head = blockIdx.y, thread = threadIdx.x, warp = thread >> 5, lane = thread & 31,
            part = lane >> 2;
  const int in_block = warp * 4 + (lane & 3), column = static_cast<int>(blockIdx.x * 32 + in_block);
  wait_for_previous_kernel();
  const int first = p.row_start[sequence], rows = p.row_start[sequence + 1] - first;
  const std::int64_t slot = p.slots[sequence];
  if (rows <= 0) return;

  const int key_head = head / (p.value_heads / p.key_heads), key_width = p.key_heads * kKeys;
  const float* gates = p.mixed + static_cast<std::int64_t>(p.rows) * p.channels;
  float* result = p.mixed + static_cast<std::int64_t>(p.rows) * (p.channels + 2 * p.value_heads);
  const auto fetch = [&](int from, Piece& to) {
    constexpr int kFours = kKeys / 4, kRow = 2 * kFours + 8;  // 16-byte pieces of a token: q, k, 32 values
    for (int i = thread; i < kTokens * kRow; i += kThreads) {
      const int t = i / kRow, at = i % kRow;
      if (from + t >= rows) break;
      const float* mixed = p.mixed + static_cast<std::int64_t>(first + from + t) * p.channels;
      if (at < 2 * kFours) {
        const int key = at % kFours * 4, place = key / kKeysPerLane * kPart + key % kKeysPerLane;
        const bool is_q = at < kFours;
        async_copy16(shared_address(is_q ? &to.q[t][place] : &to.k[t][place]),
                     mixed + (is_q ? 0 : key_width) + key_head * kKeys + key);
      } else {
        const int value = (at - 2 * kFours) * 4;
        async_copy16(shared_address(&to.v[t][value]),
                     mixed + 2 * key_width + head * p.value_dim + blockIdx.x * 32 + value);
      }
    }
    if (thread < 2 * kTokens && from + (thread & (kTokens - 1)) < rows) {
      const int t = thread & (kTokens - 1);
      const std::int64_t row = first + from + t;
      const bool is_alpha = thread < kTokens;
      asm volatile(
          "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(is_alpha ? &to.alpha[t] : &to.beta[t])),
          "l"(gates + (is_alpha ? row : p.rows + row) * p.value_heads + head)
          : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0, pieces[0]);

  move_window(p, first, rows, slot);

  float* state = p.state + slot * p.state_stride +
                 (static_cast<std::int64_t>(head) * kKeys + part * kKeysPerLane) * p.value_dim + column;
  float s[kKeysPerLane];
#pragma unroll
  for (int i = 0; i < kKeysPerLane; ++i) s[i] = state[static_cast<std::int64_t>(i) * p.value_dim];

  for (int start = 0, stage = 0; start < rows; start += kTokens, stage ^= 1) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();  // this piece is here, and everyone has left the other
    if (start + kTokens < rows) fetch(start + kTokens, pieces[stage ^ 1]);
    const Piece& now = pieces[stage];
    const int tokens = min(kTokens, rows - start);
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
      const float v = now.v[t][in_block], alpha = now.alpha[t], beta = now.beta[t];
      float read = 0, out = 0, dot = 0;
      float k[kKeysPerLane];
#pragma unroll
      for (int i = 0; i < kKeysPerLane; i += 4) {
        const float4 k4 = *reinterpret_cast<const float4*>(&now.k[t][part * kPart + i]),
                     q4 = *reinterpret_cast<const float4*>(&now.q[t][part * kPart + i]);
        k[i] = k4.x;
        k[i + 1] = k4.y;
        k[i + 2] = k4.z;
        k[i + 3] = k4.w;
        read += s[i] * k4.x + s[i + 1] * k4.y + s[i + 2] * k4.z + s[i + 3] * k4.w;
        out += s[i] * q4.x + s[i + 1] * q4.y + s[i + 2] * q4.z + s[i + 3] * q4.w;
        dot += k4.x * q4.x + k4.y * q4.y + k4.z * q4.z + k4.w * q4.w;
      }
#pragma unroll
      for (int step = 4; step < 32; step <<= 1) {
        read += __shfl_xor_sync(~0u, read, step);
        out += __shfl_xor_sync(~0u, out, step);
        dot += __shfl_xor_sync(~0u, dot, step);
      }
      const float d = beta * (v - alpha * read);
#pragma unroll
      for (int i = 0; i < kKeysPerLane; ++i) s[i] = alpha * s[i] + k[i] * d;
      if (part == 0)
        result[static_cast<std::int64_t>(first + start + t) * p.value_heads * p.value_dim + head * p.value_dim +
               column] = alpha * out + dot * d;
    }
  }
#pragma unroll
  for (int i = 0; i < kKeysPerLane; ++i) state[static_cast<std::int64_t>(i) * p.value_dim] = s[i];
}

struct GatedNormParams {
  DeltaNetParams layer;
  const float* result;  ///< [rows, value_heads, value_dim]
};

/// A warp a head: out = norm(result) * silu(z).
__global__ void __launch_bounds__(128) gated_norm(const __grid_constant__ GatedNormParams params) {
  const DeltaNetParams& p = params.layer;
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.y;
  const int head = static_cast<int>(blockIdx.x * 4 + (threadIdx.x >> 5)), lane = threadIdx.x & 31;
  if (head >= p.value_heads) return;
  const float* result = params.result + (row * p.value_heads + head) * p.value_dim;
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

constexpr int kStepThreads = 512, kStepDim = 128;

/// One token a sequence, everything in one launch: a block a value head, whose state is read and written once. The
/// value heads that share a key head form a cluster, because only one of them may move that key head's convolution
/// window on, and not before all have read it. kernel == 4, value_dim == 128, key_dim == 16 * kKeysPerWarp.
template <int kKeysPerWarp>
__global__ void __launch_bounds__(kStepThreads) step(const __grid_constant__ DeltaNetParams p) {
  constexpr int kKeys = 16 * kKeysPerWarp, kWarps = kStepThreads / 32, kChannels = 2 * kKeys + kStepDim;
  __shared__ __align__(16) float mixed[kChannels];  // q, k, v
  __shared__ __align__(16) float reads[kWarps][kStepDim], outs[kWarps][kStepDim], change[kStepDim];
  __shared__ float squares[kChannels / 32], gates[2], dots[kWarps], norm_parts[kStepDim / 32];
  cluster_arrive();
  allow_next_kernel();
  const int head = blockIdx.x, sequence = blockIdx.y, thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int per_key = p.value_heads / p.key_heads, key_head = head / per_key;
  const std::int64_t row = p.row_start[sequence], slot = p.slots[sequence];  // the host wrote them
  // The state, on its way while the rest is prepared: warp w holds keys w * kKeysPerWarp .., lane l columns 4 l ..
  float4* state =
      reinterpret_cast<float4*>(p.state + slot * p.state_stride +
                                (static_cast<std::int64_t>(head) * kKeys + warp * kKeysPerWarp) * kStepDim) +
      lane;
  if (lane % 8 == 0) {
#pragma unroll
    for (int i = 0; i < kKeysPerWarp; ++i) asm volatile("prefetch.global.L2 [%0];" ::"l"(state + i * (kStepDim / 4)));
  }
  cluster_wait();
  wait_for_previous_kernel();
  float4 s[kKeysPerWarp];
#pragma unroll
  for (int i = 0; i < kKeysPerWarp; ++i) s[i] = __ldcs(state + i * (kStepDim / 4));

  // Convolution and SiLU, a thread a channel.
  float* window = p.window + slot * p.window_stride;
  float now = 0, old1 = 0, old2 = 0;
  int channel = 0;
  const bool own = thread < kChannels;
  if (own) {
    channel = thread < kKeys       ? key_head * kKeys + thread
              : thread < 2 * kKeys ? (p.key_heads + key_head) * kKeys + thread - kKeys
                                   : 2 * p.key_heads * kKeys + head * kStepDim + thread - 2 * kKeys;
    const float4 taps = *reinterpret_cast<const float4*>(p.conv_weight + static_cast<std::int64_t>(channel) * 4);
    const float old0 = window[channel];
    old1 = window[p.channels + channel];
    old2 = window[2 * static_cast<std::int64_t>(p.channels) + channel];
    now = element(p.qkv, row, channel);
    const float sum = taps.x * old0 + taps.y * old1 + taps.z * old2 + taps.w * now;
    const float value = sum / (1.0f + __expf(-sum));
    mixed[thread] = value;
    const float square = warp_sum(value * value);
    if (lane == 0) squares[warp] = square;
  }
  if (thread == kChannels) {
    const float x = element(p.a, row, head) + p.dt_bias[head], softplus = x > 20.0f ? x : log1pf(expf(x));
    gates[0] = expf(-expf(p.a_log[head]) * softplus);
    gates[1] = 1.0f / (1.0f + expf(-element(p.b, row, head)));
  }
  __syncthreads();
  cluster_arrive();  // the windows were read

  float q_square = 0, k_square = 0;
#pragma unroll
  for (int i = 0; i < kKeys / 32; ++i) {
    q_square += squares[i];
    k_square += squares[kKeys / 32 + i];
  }
  const float q_scale = rsqrtf(q_square + 1e-6f) * rsqrtf(static_cast<float>(kKeys)),
              k_scale = rsqrtf(k_square + 1e-6f);
  const float alpha = gates[0], beta = gates[1];
  float k[kKeysPerWarp], dot = 0;
  float4 read = make_float4(0, 0, 0, 0), out = read;
#pragma unroll
  for (int i = 0; i < kKeysPerWarp; ++i) {
    const float q = mixed[warp * kKeysPerWarp + i] * q_scale;
    k[i] = mixed[kKeys + warp * kKeysPerWarp + i] * k_scale;
    dot += q * k[i];
    read.x += s[i].x * k[i];
    read.y += s[i].y * k[i];
    read.z += s[i].z * k[i];
    read.w += s[i].w * k[i];
    out.x += s[i].x * q;
    out.y += s[i].y * q;
    out.z += s[i].z * q;
    out.w += s[i].w * q;
  }
  *reinterpret_cast<float4*>(&reads[warp][lane * 4]) = read;
  *reinterpret_cast<float4*>(&outs[warp][lane * 4]) = out;
  if (lane == 0) dots[warp] = dot;
  __syncthreads();
  float result = 0;
  if (thread < kStepDim) {
    float all_read = 0, all_out = 0, all_dot = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      all_read += reads[w][thread];
      all_out += outs[w][thread];
      all_dot += dots[w];
    }
    const float d = beta * (mixed[2 * kKeys + thread] - alpha * all_read);
    change[thread] = d;
    result = alpha * all_out + all_dot * d;
    const float square = warp_sum(result * result);
    if (lane == 0) norm_parts[warp] = square;
  }
  __syncthreads();
  const float4 d = *reinterpret_cast<const float4*>(&change[lane * 4]);
#pragma unroll
  for (int i = 0; i < kKeysPerWarp; ++i) {
    s[i].x = alpha * s[i].x + k[i] * d.x;
    s[i].y = alpha * s[i].y + k[i] * d.y;
    s[i].z = alpha * s[i].z + k[i] * d.z;
    s[i].w = alpha * s[i].w + k[i] * d.w;
    __stcs(state + i * (kStepDim / 4), s[i]);
  }
  if (thread < kStepDim) {
    float square = 0;
#pragma unroll
    for (int w = 0; w < kStepDim / 32; ++w) square += norm_parts[w];
    const float z = element(p.z, row, head * kStepDim + thread);
    const float y = result * rsqrtf(square / static_cast<float>(kStepDim) + p.eps) * p.norm_weight[thread] *
                    (z / (1.0f + __expf(-z)));
    const std::int64_t at = row * p.out.stride + head * kStepDim + thread;
    if (p.out.f32 != 0) {
      static_cast<float*>(p.out.data)[at] = y;
    } else {
      static_cast<__half*>(p.out.data)[at] = __float2half_rn(y);
    }
  }
  cluster_wait();
  if (own && (thread >= 2 * kKeys || head % per_key == 0)) {
    window[channel] = old1;
    window[p.channels + channel] = old2;
    window[2 * static_cast<std::int64_t>(p.channels) + channel] = now;
  }
}

/// Whether `step` can do it.
bool is_single_step(const LaunchContext& context, const DeltaNetParams& p) {
  const int per_key = p.value_heads / p.key_heads;
  return context.dependent_launch && p.rows == p.sequences && p.kernel == 4 && p.value_dim == kStepDim &&
         per_key <= 8 && p.state_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.state) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(p.conv_weight) % 16 == 0;
}

void launch_step(const LaunchContext& context, const DeltaNetParams& p) {
  const dim3 grid(static_cast<unsigned>(p.value_heads), static_cast<unsigned>(p.sequences));
  const int cluster = p.value_heads / p.key_heads;
  if (p.key_dim == 32) return launch(context, step<2>, grid, kStepThreads, 0, p, cluster);
  if (p.key_dim == 64) return launch(context, step<4>, grid, kStepThreads, 0, p, cluster);
  launch(context, step<8>, grid, kStepThreads, 0, p, cluster);
}

}  // namespace

void launch_delta_net(const LaunchContext& context, const DeltaNetParams& params) {
  if (is_single_step(context, params)) return launch_step(context, params);
  const auto rows = static_cast<unsigned>(params.rows);
  const dim3 norms((static_cast<unsigned>(params.value_heads) + 3) / 4, rows);
  if (delta_chunks_fit(context, params)) {
    launch_delta_chunks(context, params);
    return launch(context, gated_norm, norms, 128, 0, GatedNormParams{params, params.mixed});
  }
  const auto heads = static_cast<unsigned>(2 * params.key_heads + params.value_heads);
  launch(context, convolve, dim3((heads + 3) / 4, rows), 128, 0, params);
  const dim3 grid(static_cast<unsigned>(params.value_dim / 32), static_cast<unsigned>(params.value_heads),
                  static_cast<unsigned>(params.sequences));
  switch (params.key_dim) {
    case 32:
      launch(context, recur<4>, grid, 256, 0, params);
      break;
    case 64:
      launch(context, recur<8>, grid, 256, 0, params);
      break;
    default:
      launch(context, recur<16>, grid, 256, 0, params);
      break;
  }
  launch(context, gated_norm, norms, 128, 0,
         GatedNormParams{params, params.mixed + static_cast<std::int64_t>(params.rows) *
                                                    (params.channels + 2 * params.value_heads)});
}

}  // namespace pergola::cuda
