#pragma once

#include <cassert>

#include "backend/opencl/handles.h"
#include "backend/tensor.h"

namespace pergola::opencl {

/// Memory of the device as the backend interface hands it around; it has no address.
class OpenClBuffer final : public Buffer {
 public:
  OpenClBuffer(Memory memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  void* address() const override { return nullptr; }
  std::size_t bytes() const override { return bytes_; }
  cl_mem memory() const { return memory_.get(); }

 private:
  Memory memory_;
  std::size_t bytes_;
};

inline cl_mem memory_of(const Tensor& tensor) {
  return static_cast<const OpenClBuffer*>(tensor.buffer)->memory();
}

/// The first element, counted in elements from the start of its memory.
inline cl_ulong offset_of(const Tensor& tensor) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  assert(tensor.offset % size == 0);
  return static_cast<cl_ulong>(tensor.offset / size);
}

inline cl_uint stride_of(const Tensor& tensor) {
  return static_cast<cl_uint>(tensor.stride);
}

/// A float matrix anywhere in device memory, tensors of operations and parts of the work space alike.
struct FloatMatrix {
  cl_mem memory = nullptr;
  cl_ulong offset = 0;  ///< elements
  cl_uint stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

inline FloatMatrix floats_of(const Tensor& tensor) {
  assert(tensor.dtype == DType::f32);
  return {memory_of(tensor), offset_of(tensor), stride_of(tensor), tensor.rows, tensor.columns};
}

}  // namespace pergola::opencl
