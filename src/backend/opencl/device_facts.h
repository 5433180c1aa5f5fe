#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/opencl/handles.h"

namespace pergola::opencl {

/// What a device says of itself.
struct DeviceFacts {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  std::string name;
  std::string vendor;
  std::string driver;   ///< version of the driver
  std::string version;  ///< "OpenCL 3.0 ..."
  std::string platform_name;
  std::string extensions;
  std::uint64_t memory_bytes = 0;
  std::uint64_t most_allocation_bytes = 0;
  std::uint64_t local_bytes = 0;  ///< of one work-group
  std::uint32_t compute_units = 0;
  std::uint32_t clock_mhz = 0;
  std::size_t most_work_items = 0;  ///< of one work-group
  bool gpu = false;
  bool shares_host_memory = false;

  bool has(std::string_view extension) const;
  /// Work-items that the device runs at a time, roughly: what a launch needs to fill it. 0 on processors, which gain
  /// nothing from splitting work further.
  std::int64_t lanes() const;
};

/// Every OpenCL device of the machine: graphics processors first, in the order of platforms. `why_none` says in a
/// sentence why the list is empty.
std::vector<DeviceFacts> find_devices(std::string& why_none);

}  // namespace pergola::opencl
