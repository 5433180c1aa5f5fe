#include "backend/backend.h"
#include "base/error.h"

namespace pergola {

std::unique_ptr<Backend> open_backend(std::string_view name, const BackendOptions&) {
  fail({.field = "--backend"}, "there is no backend '{}'", name);
}

std::vector<DeviceListing> list_devices() {
  return {};
}

}  // namespace pergola
