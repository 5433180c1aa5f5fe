#pragma once

#include <cstddef>
#include <cstdint>

namespace pergola {

/// Loads every byte of an area once and returns the exclusive or of its 64-bit words, so that no load can be dropped.
/// `bytes` is a multiple of 256, `from` aligned to 64. One function an instruction set; the caller has checked that the
/// processor has it.
std::uint64_t load_all_generic(const std::byte* from, std::size_t bytes);
#if defined(__x86_64__)
std::uint64_t load_all_avx2(const std::byte* from, std::size_t bytes);
std::uint64_t load_all_avx512(const std::byte* from, std::size_t bytes);
#endif

}  // namespace pergola
