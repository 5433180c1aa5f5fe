#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pergola {

/// "13.0 MB": decimal units as disks and memory vendors count them, three digits.
std::string human_bytes(double bytes);

/// "1.23 ms", "45.6 s", "3 min 20 s".
std::string human_seconds(double seconds);

/// Parses "512M", "2G", "1.5GB", "4096": decimal units (K, M, G, T with optional B; KiB, MiB, GiB, TiB are binary).
/// Throws Error naming `field`.
std::uint64_t parse_bytes(std::string_view text, std::string_view field);

}  // namespace pergola
