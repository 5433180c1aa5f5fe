#include "backend/opencl/check.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace pergola::opencl {

namespace {

struct NamedCode {
  cl_int code;
  std::string_view name;
};

constexpr std::array kNames{
    NamedCode{CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    NamedCode{CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    NamedCode{CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    NamedCode{CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    NamedCode{CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    NamedCode{CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    NamedCode{CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    NamedCode{CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    NamedCode{CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
    NamedCode{CL_INVALID_BINARY, "CL_INVALID_BINARY"},
    NamedCode{CL_INVALID_BUILD_OPTIONS, "CL_INVALID_BUILD_OPTIONS"},
    NamedCode{CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
    NamedCode{CL_INVALID_ARG_INDEX, "CL_INVALID_ARG_INDEX"},
    NamedCode{CL_INVALID_ARG_VALUE, "CL_INVALID_ARG_VALUE"},
    NamedCode{CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
    NamedCode{CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    NamedCode{CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    NamedCode{-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

bool is_memory(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY || code == CL_OUT_OF_RESOURCES ||
         code == CL_INVALID_BUFFER_SIZE;
}

}  // namespace

std::string_view name_of_error(cl_int code) {
  const auto found = std::find_if(kNames.begin(), kNames.end(), [&](const NamedCode& n) { return n.code == code; });
  return found != kNames.end() ? found->name : "an error";
}

void fail_opencl(cl_int code, std::string_view doing) {
  fail({}, "OpenCL failed while {}: {} ({}){}", doing, name_of_error(code), code,
       is_memory(code)
           ? "; the device is probably out of memory: try a smaller --context, --kv-cache-bytes or --max-rows"
           : "");
}

}  // namespace pergola::opencl
