#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include <memory>

namespace pergola::opencl {

/// Releases OpenCL objects by their own function.
struct Release {
  void operator()(cl_context handle) const { clReleaseContext(handle); }
  void operator()(cl_command_queue handle) const { clReleaseCommandQueue(handle); }
  void operator()(cl_program handle) const { clReleaseProgram(handle); }
  void operator()(cl_kernel handle) const { clReleaseKernel(handle); }
  void operator()(cl_mem handle) const { clReleaseMemObject(handle); }
};

using Context = std::unique_ptr<_cl_context, Release>;
using Queue = std::unique_ptr<_cl_command_queue, Release>;
using Program = std::unique_ptr<_cl_program, Release>;
using KernelHandle = std::unique_ptr<_cl_kernel, Release>;
using Memory = std::unique_ptr<_cl_mem, Release>;

}  // namespace pergola::opencl
