#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/tensor.h"

namespace pergola::cpu {

/// Zeroed memory that starts on a cache line; large blocks start on a huge page and ask for huge pages. The system
/// hands pages out when they are first touched. Throws Error naming `what` when the system refuses.
class Memory final : public Buffer {
 public:
  Memory(std::size_t bytes, std::string_view what);
  ~Memory() override;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* address() const override { return address_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* address_ = nullptr;
};

/// Memory that someone else owns, for tensors inside a work space.
class BorrowedMemory final : public Buffer {
 public:
  BorrowedMemory(void* address, std::size_t bytes) : address_(address), bytes_(bytes) {}

  void* address() const override { return address_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  void* address_;
  std::size_t bytes_;
};

/// Cuts a block of memory into arrays that start on cache lines. Over null it only counts, so that one function can
/// both state a size and lay the arrays out.
class Carver {
 public:
  explicit Carver(std::byte* base = nullptr) : base_(base) {}

  template <typename T>
  T* take(std::int64_t count) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }

  std::int64_t used() const { return static_cast<std::int64_t>(used_); }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace pergola::cpu
