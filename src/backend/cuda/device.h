#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/packed_gemm.h"

namespace pergola::cuda {

/// Device memory, zeroed. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Throws Error naming `what` when there is too little memory.
  DeviceMemory(std::size_t bytes, std::string_view what);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Work space that layers share, because a step runs one operation after the other. Grows while weights are bound,
/// never during a step.
class WorkSpace {
 public:
  void reserve(std::size_t bytes, std::string_view what);
  std::byte* data() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
};

/// Brings trellis words into device memory in packed order: host memory to pinned pieces to the device, copies and
/// repacking overlapped.
class WeightLoader {
 public:
  explicit WeightLoader(cudaStream_t stream) : stream_(stream) {}
  ~WeightLoader();
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  void load(const TrellisView& trellis, std::byte* packed);
  /// Plain bytes.
  void copy(const void* from, std::size_t bytes, std::byte* to);

 private:
  struct Piece {
    std::byte* pinned = nullptr;
    std::byte* device = nullptr;
    cudaEvent_t done = nullptr;
    std::size_t used = 0;
  };

  /// Room for `bytes` in a piece that the device has finished with.
  Piece& room(std::size_t bytes);

  static constexpr std::size_t kPieceBytes = std::size_t{32} << 20;
  cudaStream_t stream_;
  Piece pieces_[2];
  int current_ = 0;
};

/// One open CUDA device: its stream, its kernels' shared scratch and its work space.
class Device {
 public:
  /// Throws Error in one sentence: no such device, driver missing or too old, unsupported architecture.
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const LaunchContext& context() const { return context_; }
  cudaStream_t stream() const { return context_.stream; }
  const PackedGemmScratch& scratch() const { return scratch_; }
  const std::string& name() const { return name_; }
  const std::string& architecture() const { return architecture_; }
  /// Free when the device was opened.
  std::size_t memory_bytes() const { return memory_bytes_; }
  WorkSpace& work() { return work_; }
  WeightLoader& loader() { return *loader_; }
  Gemm& gemm() { return *gemm_; }
  void synchronize();
  int index() const { return index_; }
  /// Makes this the calling thread's device.
  void enter_thread() const;

 private:
  int index_;
  LaunchContext context_;
  std::string name_, architecture_;
  std::size_t memory_bytes_ = 0;
  DeviceMemory scratch_memory_;
  PackedGemmScratch scratch_;
  WorkSpace work_;
  std::unique_ptr<WeightLoader> loader_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace pergola::cuda
