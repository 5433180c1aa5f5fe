#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace pergola {

/// Memory of one device. `address()` is a pointer in the device's own address space (a host pointer on the CPU); null
/// where the device has none.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* address() const = 0;
  virtual std::size_t bytes() const = 0;
};

/// A matrix inside a Buffer, by value: [rows, columns], rows `stride` elements apart. Vectors are one row. Does not own
/// its buffer.
struct Tensor {
  Buffer* buffer = nullptr;
  std::int64_t offset = 0;  ///< bytes from the buffer's start
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  ///< elements between rows

  explicit operator bool() const { return buffer != nullptr; }

  /// The first element, as a pointer of the device's address space.
  template <typename T>
  T* data() const {
    assert(buffer != nullptr && sizeof(T) == size_of(dtype));
    return reinterpret_cast<T*>(static_cast<std::byte*>(buffer->address()) + offset);
  }

  /// Row `index` as T*, device address space.
  template <typename T>
  T* row(std::int64_t index) const {
    return data<T>() + index * stride;
  }

  /// The rows [first, first + count).
  Tensor slice_rows(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows);
    Tensor part = *this;
    part.offset += first * stride * static_cast<std::int64_t>(size_of(dtype));
    part.rows = count;
    return part;
  }

  /// The columns [first, first + count) of every row.
  Tensor slice_columns(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= columns);
    Tensor part = *this;
    part.offset += first * static_cast<std::int64_t>(size_of(dtype));
    part.columns = count;
    return part;
  }
};

}  // namespace pergola
