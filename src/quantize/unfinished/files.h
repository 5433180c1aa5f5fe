#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace pergola {

/// The content of a small file. Throws Error when it cannot be read.
std::string read_text(const std::filesystem::path& path);

/// Replaces a file by `text`: written under another name, flushed to the device, renamed. Throws Error and leaves the
/// old file when that fails.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// Creates a folder and its parents. Throws Error when that fails.
void create_folder(const std::filesystem::path& path);

}  // namespace pergola
