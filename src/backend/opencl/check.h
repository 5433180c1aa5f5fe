#pragma once

#include <string_view>

#include "backend/opencl/handles.h"

namespace pergola::opencl {

/// The constant's name for an OpenCL error code, such as "CL_OUT_OF_RESOURCES".
std::string_view name_of_error(cl_int code);

/// Throws Error: what the program was doing and what OpenCL answered.
[[noreturn]] void fail_opencl(cl_int code, std::string_view doing);

inline void check(cl_int code, std::string_view doing) {
  if (code != CL_SUCCESS) fail_opencl(code, doing);
}

}  // namespace pergola::opencl
