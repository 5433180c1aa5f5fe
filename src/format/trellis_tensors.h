#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "format/safetensors.h"
#include "trellis/codebook.h"

namespace pergola {

/// Features that one Hadamard block covers: stored widths of an EXL3 linear are multiples of it.
inline constexpr std::int64_t kHadamardBlock = 128;

/// The tensors of one EXL3 linear, found by name and checked by their headers.
struct TrellisTensors {
  const TensorEntry* trellis = nullptr;
  const TensorEntry* suh = nullptr;  ///< binary16 [in], or null when `su` stands in for it
  const TensorEntry* svh = nullptr;  ///< binary16 [out], or null when `sv` stands in for it
  const TensorEntry* su = nullptr;   ///< legacy sign words, i16 [in/16]; used without suh only
  const TensorEntry* sv = nullptr;   ///< legacy sign words, i16 [out/16]
  std::int64_t in_features = 0;      ///< as stored
  std::int64_t out_features = 0;     ///< as stored
  int bits = 0;                      ///< K, 1..8
  Codebook codebook = Codebook::three_inst;
};

/// Finds and checks the tensors of the linear at `key`, whose `key`.trellis exists. Reads no tensor data. Throws Error
/// naming the tensor for: a rank or last dimension that no K explains, widths that are not multiples of 128, missing or
/// misshapen sign vectors, both codebook markers at once.
TrellisTensors find_trellis(const TensorTable& tensors, std::string_view key);

/// `key` without ".trellis"; empty when `name` is not the trellis of a linear.
std::string_view trellis_key(std::string_view name);

}  // namespace pergola
