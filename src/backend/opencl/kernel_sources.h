#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pergola::opencl {

/// One file of kernels/, made part of the program when it is built (cmake/embed_kernels.cmake).
struct KernelFile {
  std::string_view name;
  std::string_view text;
};

std::span<const KernelFile> kernel_files();

/// The text of `name` with the files it includes in their places.
std::string kernel_source(std::string_view name);

}  // namespace pergola::opencl
