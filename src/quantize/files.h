#pragma once

#include <filesystem>
#include <set>
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

/// The names in a folder. Throws Error when it cannot be read.
std::set<std::string> names_in(const std::filesystem::path& folder);

/// Whether two folders hold regular files of the same names and bytes.
bool same_files(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace pergola
