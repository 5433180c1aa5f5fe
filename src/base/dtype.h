#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pergola {

/// Element types of tensors, named as safetensors names them.
enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};

/// Bytes of one element.
std::size_t size_of(DType type);

/// The name in a safetensors header, e.g. "BF16".
std::string_view name_of(DType type);

/// The inverse of name_of; nothing for a name that is not known.
std::optional<DType> dtype_from_name(std::string_view name);

/// Whether values of the type can be read as float weights (f32, f16, bf16).
bool is_float_weight(DType type);

}  // namespace pergola
