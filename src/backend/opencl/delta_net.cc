#include "backend/opencl/delta_net.h"

#include <fmt/format.h>

#include "backend/opencl/tensor_argument.h"
#include "base/error.h"

namespace pergola::opencl {

namespace {

/// shape_t of kernels/delta_net.cl.
struct DeltaNetShape {
  std::uint64_t qkv = 0, z = 0, b = 0, a = 0, out = 0, window = 0, state = 0, row_sequence = 0, row_start = 0,
                slots = 0, conv_weight = 0, a_log = 0, dt_bias = 0, norm_weight = 0;
  std::uint64_t window_stride = 0, state_stride = 0;
  std::uint32_t qkv_stride = 0, z_stride = 0, b_stride = 0, a_stride = 0, out_stride = 0;
  std::uint32_t key_heads = 0, value_heads = 0, value_dim = 0, taps = 0, channels = 0;
  float eps = 0, reserved = 0;
};

DeltaNetShape shape_of(const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& a,
                       const DeltaNetState& state, const Batch& batch, const Tensor& out) {
  DeltaNetShape s;
  s.qkv = offset_of(qkv);
  s.z = offset_of(z);
  s.b = offset_of(b);
  s.a = offset_of(a);
  s.out = offset_of(out);
  s.window = offset_of(state.window);
  s.state = offset_of(state.state);
  s.row_sequence = offset_of(batch.row_sequence);
  s.row_start = offset_of(batch.row_start);
  s.slots = offset_of(batch.slots);
  s.conv_weight = offset_of(layer.conv_weight);
  s.a_log = offset_of(layer.a_log);
  s.dt_bias = offset_of(layer.dt_bias);
  s.norm_weight = offset_of(layer.norm.weight);
  s.window_stride = static_cast<std::uint64_t>(state.window.stride);
  s.state_stride = static_cast<std::uint64_t>(state.state.stride);
  s.qkv_stride = stride_of(qkv);
  s.z_stride = stride_of(z);
  s.b_stride = stride_of(b);
  s.a_stride = stride_of(a);
  s.out_stride = stride_of(out);
  s.key_heads = static_cast<std::uint32_t>(layer.key_heads);
  s.value_heads = static_cast<std::uint32_t>(layer.value_heads);
  s.value_dim = static_cast<std::uint32_t>(layer.value_dim);
  s.taps = static_cast<std::uint32_t>(layer.kernel);
  s.channels = static_cast<std::uint32_t>(layer.channels());
  s.eps = layer.norm.eps;
  return s;
}

}  // namespace

DeltaNetKernels::DeltaNetKernels(Device& device, int key_dim) {
  if (key_dim != 32 && key_dim != 64 && key_dim != 128)
    fail({}, "delta-net heads of {} keys are not supported by the OpenCL backend: 32, 64 or 128", key_dim);
  const std::string options = fmt::format("{} -DKEY_DIM={}", device.base_options(), key_dim);
  convolve = &device.kernel("delta_net.cl", "delta_net_convolve", options);
  keep_window = &device.kernel("delta_net.cl", "delta_net_window", options);
  recur = &device.kernel("delta_net.cl", "delta_net_recur", options);
  norm = &device.kernel("delta_net.cl", "delta_net_norm", options);
}

std::size_t delta_net_work_bytes(const DeltaNet& layer, std::int64_t max_rows) {
  return static_cast<std::size_t>(max_rows * layer.channels()) * sizeof(float);
}

void run_delta_net(Device& device, const DeltaNetKernels& kernels, const DeltaNet& layer, const Tensor& qkv,
                   const Tensor& z, const Tensor& b, const Tensor& a, const DeltaNetState& state, const Batch& batch,
                   const Tensor& out) {
  if (batch.rows == 0) return;
  const DeltaNetShape shape = shape_of(layer, qkv, z, b, a, state, batch, out);
  const auto rows = static_cast<std::size_t>(batch.rows), sequences = static_cast<std::size_t>(batch.sequences);
  const auto heads = static_cast<std::size_t>(layer.value_heads), key_dim = static_cast<std::size_t>(layer.key_dim);
  const auto channels = static_cast<std::size_t>(layer.channels());
  device.launch(*kernels.convolve, {{rows, (channels + key_dim - 1) / key_dim, 1}, {key_dim, 1, 1}}, shape,
                memory_of(qkv), memory_of(state.window), memory_of(batch.row_sequence), memory_of(batch.row_start),
                memory_of(batch.slots), memory_of(layer.conv_weight), device.work());
  device.launch(*kernels.keep_window, {{(channels + 63) / 64, sequences, 1}, {64, 1, 1}}, shape, memory_of(qkv),
                memory_of(state.window), memory_of(batch.row_start), memory_of(batch.slots));
  device.launch(*kernels.recur, {{static_cast<std::size_t>(layer.value_dim + 31) / 32, heads, sequences}, {32, 8, 1}},
                shape, device.work(), memory_of(b), memory_of(a), memory_of(state.state), memory_of(batch.row_start),
                memory_of(batch.slots), memory_of(layer.a_log), memory_of(layer.dt_bias), memory_of(out));
  device.launch(*kernels.norm, {{rows, heads, 1}, {32, 1, 1}}, shape, memory_of(z), memory_of(layer.norm.weight),
                memory_of(out));
}

}  // namespace pergola::opencl
