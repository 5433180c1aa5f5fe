#pragma once

#include <cstdlib>

#include "backend/tensor.h"

namespace pergola::reference {

/// Zeroed host memory.
class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes) : data_(std::calloc(bytes > 0 ? bytes : 1, 1)), bytes_(bytes) {}
  ~HostBuffer() override { std::free(data_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  void* address() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  void* data_;  ///< null when the system gave none
  std::size_t bytes_;
};

}  // namespace pergola::reference
