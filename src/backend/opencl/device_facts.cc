#include "backend/opencl/device_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "backend/opencl/check.h"

namespace pergola::opencl {

namespace {

std::string text_of(cl_device_id device, cl_device_info what) {
  std::size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  check(clGetDeviceInfo(device, what, size, text.data(), nullptr), "asking for a device's properties");
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string platform_text(cl_platform_id platform, cl_platform_info what) {
  std::size_t size = 0;
  if (clGetPlatformInfo(platform, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  check(clGetPlatformInfo(platform, what, size, text.data(), nullptr), "asking for a platform's properties");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

template <typename T>
T value_of(cl_device_id device, cl_device_info what) {
  T value{};
  check(clGetDeviceInfo(device, what, sizeof value, &value, nullptr), "asking for a device's properties");
  return value;
}

DeviceFacts facts_of(cl_platform_id platform, cl_device_id device) {
  DeviceFacts facts{.platform = platform, .id = device};
  facts.name = text_of(device, CL_DEVICE_NAME);
  facts.vendor = text_of(device, CL_DEVICE_VENDOR);
  facts.driver = text_of(device, CL_DRIVER_VERSION);
  facts.version = text_of(device, CL_DEVICE_VERSION);
  facts.platform_name = platform_text(platform, CL_PLATFORM_NAME);
  facts.extensions = fmt::format(" {} ", text_of(device, CL_DEVICE_EXTENSIONS));
  facts.memory_bytes = value_of<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  facts.most_allocation_bytes = value_of<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  facts.local_bytes = value_of<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  facts.compute_units = value_of<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  facts.clock_mhz = value_of<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  facts.most_work_items = value_of<std::size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  facts.gpu = (value_of<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU) != 0;
  facts.shares_host_memory = value_of<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
  return facts;
}

}  // namespace

bool DeviceFacts::has(std::string_view extension) const {
  return extensions.find(fmt::format(" {} ", extension)) != std::string::npos;
}

std::int64_t DeviceFacts::lanes() const {
  if (!gpu) return 0;
  // A compute unit is a vector engine of 8 threads of 16 lanes on Intel, a multiprocessor or the like elsewhere.
  const bool intel = vendor.find("Intel") != std::string::npos;
  return std::int64_t{compute_units} * (intel ? 8 * 16 : 2048);
}

std::vector<DeviceFacts> find_devices(std::string& why_none) {
  cl_uint platform_count = 0;
  if (clGetPlatformIDs(0, nullptr, &platform_count) != CL_SUCCESS || platform_count == 0) {
    why_none = "no OpenCL platform is installed (intel-opencl-icd, pocl-opencl-icd and graphics drivers bring one)";
    return {};
  }
  std::vector<cl_platform_id> platforms(platform_count);
  check(clGetPlatformIDs(platform_count, platforms.data(), nullptr), "listing OpenCL platforms");
  std::vector<DeviceFacts> found;
  for (const cl_platform_id platform : platforms) {
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
    std::vector<cl_device_id> devices(count);
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), "listing OpenCL devices");
    for (const cl_device_id device : devices) found.push_back(facts_of(platform, device));
  }
  if (found.empty()) why_none = "none of the installed OpenCL platforms has a device";
  std::stable_sort(found.begin(), found.end(),
                   [](const DeviceFacts& a, const DeviceFacts& b) { return a.gpu && !b.gpu; });
  return found;
}

}  // namespace pergola::opencl
