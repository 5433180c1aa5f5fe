#include "backend/opencl/kernel_sources.h"

#include <algorithm>
#include <stdexcept>

namespace pergola::opencl {

std::string kernel_source(std::string_view name) {
  constexpr std::string_view kInclude = "#include \"";
  const auto files = kernel_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const KernelFile& f) { return f.name == name; });
  if (file == files.end()) throw std::logic_error("no kernel file " + std::string(name));
  std::string source;
  for (std::string_view rest = file->text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    if (line.starts_with(kInclude))
      source += kernel_source(line.substr(kInclude.size(), line.find('"', kInclude.size()) - kInclude.size()));
    else
      source += line;
    rest.remove_prefix(end);
  }
  return source;
}

}  // namespace pergola::opencl
