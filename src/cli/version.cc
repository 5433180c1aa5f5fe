#include "cli/version.h"

#include <fmt/format.h>

#include <set>

#include "backend/backend.h"
#include "build_facts.h"

namespace pergola {
namespace {

/// Instruction sets that kernels were compiled for.
constexpr const char* kInstructionSets =
#if defined(__x86_64__)
    "scalar avx2 avx512 amx";
#else
    "scalar";
#endif

}  // namespace

std::string version_text() {
  std::set<std::string> backends;
  for (const DeviceListing& device : list_devices()) backends.insert(device.backend);
  return fmt::format("pergola {}\ncommit    {}\ncompiler  {}, {}\nprocessor {}; kernels for {}\nbackends  {}",
                     PERGOLA_VERSION, PERGOLA_COMMIT, PERGOLA_COMPILER, PERGOLA_BUILD_TYPE, PERGOLA_PROCESSOR,
                     kInstructionSets, fmt::join(backends, " "));
}

}  // namespace pergola
