#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/forwarding_backend.h"

namespace pergola::testing {

/// Forwards everything to another backend, but memory that a model asks for is filled with NaN instead of zeros: what
/// reads memory before it was written shows in the results. Also counts that memory.
class PoisonBackend final : public ForwardingBackend {
 public:
  explicit PoisonBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(*inner), owned_(std::move(inner)) {}

  /// Bytes that a model allocated so far.
  std::size_t allocated() const { return allocated_; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes, std::string_view what) override {
    std::unique_ptr<Buffer> buffer = inner_.allocate(bytes, what);
    const std::vector<unsigned char> poison(bytes, 0xFF);  // a NaN as f32, f16 and bf16
    if (bytes > 0) {
      inner_.upload({buffer.get(), 0, DType::u8, 1, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(bytes)},
                    poison.data());
    }
    allocated_ += bytes;
    return buffer;
  }

 private:
  std::unique_ptr<Backend> owned_;
  std::size_t allocated_ = 0;
};

}  // namespace pergola::testing
