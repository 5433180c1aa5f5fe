#include <array>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/opencl/opencl_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/error.h"

namespace pergola {

namespace {

/// One backend folder: it offers a factory and says which devices it finds here.
struct Entry {
  std::string_view name;
  std::unique_ptr<Backend> (*open)(const BackendOptions& options);
  std::vector<DeviceListing> (*list)();
};

constexpr std::array kBackends = {
    Entry{"cpu", open_cpu_backend, list_cpu_devices},
    Entry{"reference", make_reference_backend, list_reference_devices},
    Entry{"cuda", make_cuda_backend, list_cuda_devices},
    Entry{"opencl", make_opencl_backend, list_opencl_devices},
};

void refuse_opencl_options(std::string_view name, const BackendOptions& options) {
  if (options.cache_8bit) fail({.field = "--kv-cache-8bit"}, "the {} backend has no 8-bit KV cache", name);
  if (options.device != 0) fail({.field = "--device"}, "the {} backend has one device, number 0", name);
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> open_communicators(std::span<Backend* const> backends,
                                                              std::chrono::milliseconds limit) {
  std::vector<std::unique_ptr<Communicator>> found = make_nccl_communicators(backends);
  return found.empty() ? local_communicators(backends, limit) : std::move(found);
}

std::unique_ptr<Backend> open_backend(std::string_view name, const BackendOptions& options) {
  std::string known;
  for (const Entry& entry : kBackends) {
    if (entry.name == name) {
      if (name != "opencl") refuse_opencl_options(name, options);
      return entry.open(options);
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  fail({.field = "--backend"}, "there is no backend '{}'; this program has {}", name, known);
}

std::vector<DeviceListing> list_devices() {
  std::vector<DeviceListing> listings;
  for (const Entry& entry : kBackends)
    for (DeviceListing& listing : entry.list()) listings.push_back(std::move(listing));
  return listings;
}

}  // namespace pergola
