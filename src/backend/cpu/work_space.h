#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pergola {

/// Work space that an operation needs: bytes that all threads see, and bytes of each thread's own.
struct WorkNeeds {
  std::int64_t shared = 0;
  std::int64_t per_thread = 0;
};

/// Scratch memory of a backend, reused by every operation. Grows while weights are bound, never later.
class WorkSpace {
 public:
  explicit WorkSpace(int threads) : own_(static_cast<std::size_t>(threads)) {}

  /// Makes both parts at least this large; contents are lost. Throws Error when the system has no memory left.
  void reserve(const WorkNeeds& needs);

  /// 64-byte aligned; valid until the next reserve.
  std::byte* shared() { return shared_.get(); }
  std::byte* of_thread(int member) { return own_[static_cast<std::size_t>(member)].get(); }

  const WorkNeeds& size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  static Memory allocate(std::int64_t bytes);

  WorkNeeds size_;
  Memory shared_;
  std::vector<Memory> own_;
};

}  // namespace pergola
