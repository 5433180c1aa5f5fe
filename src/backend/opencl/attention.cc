#include "backend/opencl/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/opencl/tensor_argument.h"

namespace pergola::opencl {

namespace {

/// shape_t of kernels/attention.cl.
struct AttentionShape {
  std::uint64_t q = 0, k = 0, v = 0, out = 0, keys = 0, values = 0;
  std::uint64_t positions = 0, row_sequence = 0, slots = 0, pages = 0, q_weight = 0, k_weight = 0, inv_freq = 0,
                sinks = 0;
  std::uint64_t cache_stride = 0, ring = 0;
  std::int64_t window = 0;
  std::uint32_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, pages_stride = 0, page_size = 1;
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0, rope_dims = 0, parts = 1, flags = 0;
  float q_eps = 0, k_eps = 0, scale = 1, magnitude = 1, soft_cap = 0, growth = 0, growth_length = 1, reserved = 0;
};

constexpr std::uint32_t kGated = 1, kQNorm = 2, kKNorm = 4, kInterleaved = 8, kSinks = 16;
constexpr std::int64_t kMostParts = 32;

/// In how many runs the tokens of each query head are split, so that a step of few rows fills the device.
std::int64_t token_parts(const Device& device, std::int64_t groups) {
  return std::clamp<std::int64_t>(device.facts().lanes() / (64 * groups), 1, kMostParts);
}

/// The memory of a tensor that may be missing: kernels do not read it then.
cl_mem memory_or(const Tensor& tensor, cl_mem other) {
  return tensor ? memory_of(tensor) : other;
}

AttentionShape shape_of(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                        const Batch& batch, const Tensor& out) {
  AttentionShape s;
  s.q = offset_of(q);
  s.k = offset_of(k);
  s.v = offset_of(v);
  s.out = offset_of(out);
  s.keys = offset_of(cache.keys);
  s.values = offset_of(cache.values);
  s.positions = offset_of(batch.positions);
  s.row_sequence = offset_of(batch.row_sequence);
  if (batch.slots) s.slots = offset_of(batch.slots);
  if (batch.page_table) {
    s.pages = offset_of(batch.page_table);
    s.pages_stride = stride_of(batch.page_table);
  }
  s.cache_stride = static_cast<std::uint64_t>(cache.keys.stride);
  s.ring = static_cast<std::uint64_t>(cache.ring);
  s.page_size = static_cast<std::uint32_t>(std::max<std::int64_t>(cache.page_size, 1));
  s.window = layer.window;
  s.q_stride = stride_of(q);
  s.k_stride = stride_of(k);
  s.v_stride = stride_of(v);
  s.out_stride = stride_of(out);
  s.heads = static_cast<std::uint32_t>(layer.heads);
  s.kv_heads = static_cast<std::uint32_t>(layer.kv_heads);
  s.head_dim = static_cast<std::uint32_t>(layer.head_dim);
  s.rope_dims = static_cast<std::uint32_t>(layer.rope.dims);
  s.flags = (layer.gated ? kGated : 0) | (layer.q_norm ? kQNorm : 0) | (layer.k_norm ? kKNorm : 0) |
            (layer.rope.interleaved ? kInterleaved : 0) | (layer.sinks ? kSinks : 0);
  if (layer.q_norm) {
    s.q_weight = offset_of(layer.q_norm->weight);
    s.q_eps = layer.q_norm->eps;
  }
  if (layer.k_norm) {
    s.k_weight = offset_of(layer.k_norm->weight);
    s.k_eps = layer.k_norm->eps;
  }
  if (layer.rope.inv_freq) s.inv_freq = offset_of(layer.rope.inv_freq);
  if (layer.sinks) s.sinks = offset_of(layer.sinks);
  s.scale = layer.scale;
  s.magnitude = layer.rope.magnitude;
  s.soft_cap = layer.soft_cap;
  s.growth = layer.query_growth;
  s.growth_length = static_cast<float>(layer.query_growth_length);
  return s;
}

}  // namespace

std::int64_t cache_columns(const Attention& layer, CacheType type) {
  return std::int64_t{layer.kv_heads} * (layer.head_dim + (type == CacheType::i8 ? 4 : 0));
}

AttentionKernels::AttentionKernels(Device& device, CacheType type) {
  const std::string options = fmt::format("{} -DCACHE={}", device.base_options(), static_cast<int>(type));
  prepare = &device.kernel("attention.cl", "attention_prepare", options);
  attend = &device.kernel("attention.cl", "attention_attend", options);
  join = &device.kernel("attention.cl", "attention_join", options);
}

std::size_t attention_work_bytes(const Device& device, const Attention& layer, std::int64_t max_rows) {
  std::int64_t most = 0;
  for (std::int64_t rows = 1; rows <= max_rows; rows *= 2) {
    const std::int64_t parts = token_parts(device, rows * layer.heads);
    if (parts > 1) most = std::max(most, 2 * rows * parts);  // up to the next power of two
  }
  return static_cast<std::size_t>(most * layer.heads * (layer.head_dim + 2)) * sizeof(float);
}

void run_attention(Device& device, const AttentionKernels& kernels, const Attention& layer, const Tensor& q,
                   const Tensor& k, const Tensor& v, const KvLayer& cache, const Batch& batch, const Tensor& out) {
  if (batch.rows == 0) return;
  AttentionShape shape = shape_of(layer, q, k, v, cache, batch, out);
  const auto rows = static_cast<std::size_t>(batch.rows), heads = static_cast<std::size_t>(layer.heads);
  const std::int64_t parts = token_parts(device, batch.rows * layer.heads);
  shape.parts = static_cast<std::uint32_t>(parts);
  const cl_mem none = device.work();
  const cl_mem slots = memory_or(batch.slots, none), pages = memory_or(batch.page_table, none);
  const cl_mem sinks = memory_or(layer.sinks, none);
  device.launch(*kernels.prepare, {{rows, heads + static_cast<std::size_t>(layer.kv_heads), 1}, {64, 1, 1}}, shape,
                memory_of(q), memory_of(k), memory_of(v), memory_of(cache.keys), memory_of(cache.values),
                memory_of(batch.positions), memory_of(batch.row_sequence), slots, pages,
                layer.q_norm ? memory_of(layer.q_norm->weight) : none,
                layer.k_norm ? memory_of(layer.k_norm->weight) : none, memory_or(layer.rope.inv_freq, none));
  device.launch(*kernels.attend, {{rows, heads, static_cast<std::size_t>(parts)}, {64, 1, 1}}, shape, memory_of(q),
                memory_of(cache.keys), memory_of(cache.values), memory_of(batch.positions),
                memory_of(batch.row_sequence), slots, pages, sinks, memory_of(out), device.work());
  if (parts > 1)
    device.launch(*kernels.join, {{rows, heads, 1}, {64, 1, 1}}, shape, memory_of(q), sinks, memory_of(out),
                  device.work());
}

}  // namespace pergola::opencl
