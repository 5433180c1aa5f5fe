#pragma once

#include <string>

#include "backend/batch.h"
#include "backend/opencl/device.h"
#include "backend/operations.h"

namespace pergola::opencl {

/// Widest head that the kernels take.
inline constexpr int kMostHeadDim = 512;

/// Element type of caches, CACHE of kernels/attention.cl.
enum class CacheType : std::uint8_t { f32 = 0, f16 = 1, i8 = 2 };

/// Columns of a cache row: heads of i8 carry their scale.
std::int64_t cache_columns(const Attention& layer, CacheType type);

/// Kernels of attention for one type of cache.
struct AttentionKernels {
  const Kernel* prepare = nullptr;
  const Kernel* attend = nullptr;
  const Kernel* join = nullptr;

  AttentionKernels(Device& device, CacheType type);
};

/// Bytes of work space for steps of up to max_rows rows.
std::size_t attention_work_bytes(const Device& device, const Attention& layer, std::int64_t max_rows);

void run_attention(Device& device, const AttentionKernels& kernels, const Attention& layer, const Tensor& q,
                   const Tensor& k, const Tensor& v, const KvLayer& cache, const Batch& batch, const Tensor& out);

}  // namespace pergola::opencl
