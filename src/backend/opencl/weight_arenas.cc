#include "backend/opencl/weight_arenas.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/units.h"

namespace pergola::opencl {

namespace {

constexpr std::size_t kPage = 4096;             // what integrated GPUs want of memory that they use in place
constexpr std::size_t kStagingBytes = 8 << 20;  // of one copy to a device with memory of its own

std::size_t aligned(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

ArenaPlan plan_arenas(std::span<const std::size_t> part_bytes, std::size_t most_bytes) {
  ArenaPlan plan;
  for (const std::size_t bytes : part_bytes) {
    const std::size_t size = aligned(bytes, kWeightAlignment);
    if (plan.sizes.empty() || plan.sizes.back() + size > most_bytes) plan.sizes.push_back(0);
    plan.places.push_back({static_cast<std::uint32_t>(plan.sizes.size() - 1), plan.sizes.back()});
    plan.sizes.back() += size;
  }
  return plan;
}

WeightArenas::WeightArenas(Device& device, std::span<const std::size_t> part_bytes, std::string_view what)
    : device_(device),
      plan_(plan_arenas(part_bytes, device.facts().most_allocation_bytes)),
      in_place_(device.facts().shares_host_memory) {
  if (plan_.sizes.size() > kMostArenas) {
    fail({}, "{} needs {} buffers of at most {} each on {}; the OpenCL backend reads from {}", what, plan_.sizes.size(),
         human_bytes(static_cast<double>(device.facts().most_allocation_bytes)), device.facts().name, kMostArenas);
  }
  for (const std::size_t bytes : plan_.sizes) {
    Arena& arena = arenas_.emplace_back();
    if (!in_place_) {
      arena.memory = device.allocate(bytes, what);
      continue;
    }
    arena.host.reset(
        static_cast<std::byte*>(std::aligned_alloc(kPage, aligned(std::max<std::size_t>(bytes, 1), kPage))));
    if (!arena.host) fail({}, "there is not enough memory for {}: {}", what, human_bytes(static_cast<double>(bytes)));
  }
}

void WeightArenas::write(ArenaPlace at, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Arena& arena = arenas_[at.arena];
  if (in_place_) {
    std::memcpy(arena.host.get() + at.offset, from, bytes);
    return;
  }
  for (std::size_t done = 0; done < bytes; done += kStagingBytes) {
    const std::size_t part = std::min(kStagingBytes, bytes - done);
    check(clEnqueueWriteBuffer(device_.queue(), arena.memory.get(), CL_TRUE, at.offset + done, part,
                               static_cast<const std::byte*>(from) + done, 0, nullptr, nullptr),
          "copying weights to the device");
  }
}

void WeightArenas::seal() {
  if (!in_place_) return;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    cl_int error = CL_SUCCESS;
    arenas_[i].memory.reset(clCreateBuffer(device_.context(), CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR,
                                           aligned(std::max<std::size_t>(plan_.sizes[i], 1), kPage),
                                           arenas_[i].host.get(), &error));
    check(error, "giving weights in host memory to the device");
  }
}

std::array<cl_mem, kMostArenas> WeightArenas::memories() const {
  std::array<cl_mem, kMostArenas> all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = arenas_[i < arenas_.size() ? i : 0].memory.get();
  return all;
}

std::size_t WeightArenas::bytes() const {
  return std::accumulate(plan_.sizes.begin(), plan_.sizes.end(), std::size_t{0});
}

}  // namespace pergola::opencl
