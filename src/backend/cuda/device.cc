#include "backend/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/packed_layout.h"
#include "backend/cuda/repack.h"
#include "base/error.h"
#include "base/units.h"

namespace pergola::cuda {

DeviceMemory::DeviceMemory(std::size_t bytes, std::string_view what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail({}, "the CUDA device has too little memory for {}: {}", what, human_bytes(static_cast<double>(bytes)));
  }
  check(error, "allocating memory");
  data_ = static_cast<std::byte*>(memory);
  check(cudaMemset(memory, 0, bytes), "clearing memory");
  check(cudaStreamSynchronize(nullptr), "clearing memory");  // other streams do not wait for it
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void WorkSpace::reserve(std::size_t bytes, std::string_view what) {
  if (bytes <= memory_.bytes()) return;
  check(cudaDeviceSynchronize(), "waiting for the device");
  memory_ = DeviceMemory();
  memory_ = DeviceMemory(bytes, what);
}

WeightLoader::~WeightLoader() {
  for (Piece& piece : pieces_) {
    if (piece.done != nullptr) {
      cudaEventSynchronize(piece.done);
      cudaEventDestroy(piece.done);
    }
    if (piece.pinned != nullptr) cudaFreeHost(piece.pinned);
    if (piece.device != nullptr) cudaFree(piece.device);
  }
}

WeightLoader::Piece& WeightLoader::room(std::size_t bytes) {
  Piece* piece = &pieces_[current_];
  if (piece->pinned == nullptr || piece->used + bytes > kPieceBytes) {
    if (piece->pinned != nullptr) {
      check(cudaEventRecord(piece->done, stream_), "loading weights");
      current_ ^= 1;
      piece = &pieces_[current_];
    }
    if (piece->pinned == nullptr) {
      check(cudaMallocHost(reinterpret_cast<void**>(&piece->pinned), kPieceBytes), "reserving pinned memory");
      check(cudaMalloc(reinterpret_cast<void**>(&piece->device), kPieceBytes),
            "reserving memory to load weights through");
      check(cudaEventCreateWithFlags(&piece->done, cudaEventDisableTiming), "loading weights");
    } else {
      check(cudaEventSynchronize(piece->done), "loading weights");
    }
    piece->used = 0;
  }
  return *piece;
}

void WeightLoader::load(const TrellisView& trellis, std::byte* packed) {
  const std::int64_t units = trellis.in_features / kUnitInputs;
  const std::size_t row_bytes = static_cast<std::size_t>(trellis.out_features / kUnitOutputs *
                                                         unit_bytes(trellis.bits));  // 64 inputs, all outputs
  const auto most = static_cast<std::int64_t>(kPieceBytes / row_bytes);
  if (most == 0) fail({}, "a trellis of {} columns is wider than the CUDA backend can load", trellis.out_features);
  for (std::int64_t first = 0; first < units;) {
    Piece& piece = room(row_bytes);
    const std::int64_t count =
        std::min({units - first, most, static_cast<std::int64_t>((kPieceBytes - piece.used) / row_bytes)});
    const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes;
    std::memcpy(piece.pinned + piece.used, trellis.trellis.data() + static_cast<std::size_t>(first) * row_bytes, bytes);
    check(cudaMemcpyAsync(piece.device + piece.used, piece.pinned + piece.used, bytes, cudaMemcpyHostToDevice, stream_),
          "loading weights");
    launch_repack(stream_, reinterpret_cast<const std::uint32_t*>(piece.device + piece.used),
                  reinterpret_cast<std::uint32_t*>(packed), trellis.in_features, trellis.out_features, trellis.bits,
                  first, count);
    piece.used += bytes;
    first += count;
  }
}

void WeightLoader::copy(const void* from, std::size_t bytes, std::byte* to) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(bytes - done, kPieceBytes);
    Piece& piece = room(part);
    std::memcpy(piece.pinned + piece.used, static_cast<const std::byte*>(from) + done, part);
    check(cudaMemcpyAsync(to + done, piece.pinned + piece.used, part, cudaMemcpyHostToDevice, stream_),
          "loading weights");
    piece.used += (part + 255) / 256 * 256;
    done += part;
  }
}

Device::Device(int index) : index_(index) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "looking for devices");
  if (count == 0) fail_cuda(cudaErrorNoDevice, "");
  if (index >= count) fail({.field = "--gpus"}, "there is no GPU {}; this machine has {}", index, count);
  enter_thread();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "asking for the device's properties");
  if (properties.major < 8)
    fail({.field = "--backend"}, "the CUDA device {} has compute capability {}.{}; 8.0 is the least that is supported",
         properties.name, properties.major, properties.minor);
  name_ = properties.name;
  architecture_ = fmt::format("sm_{}{}", properties.major, properties.minor);
  std::size_t all = 0;
  check(cudaMemGetInfo(&memory_bytes_, &all), "asking for the device's free memory");
  context_.multiprocessors = properties.multiProcessorCount;
  context_.shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  context_.dependent_launch = properties.major >= 9;
  context_.warpgroups = properties.major == 9;
  check(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking), "opening the device");
  const std::size_t partials = PackedGemmScratch::kPartialFloats * sizeof(float);
  scratch_memory_ = DeviceMemory(partials + PackedGemmScratch::kMaxBlocks * sizeof(unsigned), "the kernels' scratch");
  scratch_.partials = reinterpret_cast<float*>(scratch_memory_.data());
  scratch_.arrivals = reinterpret_cast<unsigned*>(scratch_memory_.data() + partials);
  gemm_ = std::make_unique<Gemm>();
  loader_ = std::make_unique<WeightLoader>(context_.stream);
  check(cudaDeviceSynchronize(), "opening the device");
}

Device::~Device() {
  loader_.reset();
  gemm_.reset();
  if (context_.stream != nullptr) cudaStreamDestroy(context_.stream);
}

void Device::enter_thread() const {
  check(cudaSetDevice(index_), "opening the device");
}

void Device::synchronize() {
  check(cudaStreamSynchronize(context_.stream), "running");
}

}  // namespace pergola::cuda
