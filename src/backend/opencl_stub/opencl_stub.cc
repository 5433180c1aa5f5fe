#include "backend/opencl/opencl_backend.h"
#include "base/error.h"

namespace pergola {

std::unique_ptr<Backend> make_opencl_backend(const BackendOptions&) {
  fail({.field = "--backend"}, "the OpenCL backend was not built into this program");
}

std::vector<DeviceListing> list_opencl_devices() {
  return {{"opencl", "", "not built", false}};
}

std::vector<std::vector<std::pair<std::string, std::string>>> describe_opencl_devices() {
  return {};
}

}  // namespace pergola
