#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/opencl/device.h"

namespace pergola::opencl {

/// Most buffers that one launch reads weights from.
inline constexpr std::size_t kMostArenas = 4;
inline constexpr std::size_t kWeightAlignment = 256;

/// Where something lies in arenas.
struct ArenaPlace {
  std::uint32_t arena = 0;
  std::size_t offset = 0;  ///< bytes
};

/// Which arena each part goes to when none may be larger than `most_bytes`: in order, a new arena when the next part
/// does not fit. `sizes[a]` are the arenas' bytes. Parts are placed at multiples of kWeightAlignment.
struct ArenaPlan {
  std::vector<ArenaPlace> places;
  std::vector<std::size_t> sizes;
};
ArenaPlan plan_arenas(std::span<const std::size_t> part_bytes, std::size_t most_bytes);

/// The packed weights of one operation. On devices that share the host's memory they lie in page-aligned host memory
/// which the device reads in place; elsewhere they go through one bounded staging copy.
class WeightArenas {
 public:
  /// Throws Error naming `what` where a part is larger than the device allocates or too many arenas are needed.
  WeightArenas(Device& device, std::span<const std::size_t> part_bytes, std::string_view what);

  ArenaPlace place(std::size_t part) const { return plan_.places[part]; }
  void write(ArenaPlace at, const void* from, std::size_t bytes);
  /// After the last write.
  void seal();

  /// The arenas as a kernel takes them: those that are not there repeat the first.
  std::array<cl_mem, kMostArenas> memories() const;
  std::size_t bytes() const;
  bool in_place() const { return in_place_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Arena {
    std::unique_ptr<std::byte, Free> host;  ///< of devices that share it; outlives `memory`
    Memory memory;
  };

  Device& device_;
  ArenaPlan plan_;
  bool in_place_;
  std::vector<Arena> arenas_;
};

}  // namespace pergola::opencl
