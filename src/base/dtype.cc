#include "base/dtype.h"

#include <array>

namespace pergola {
namespace {

struct Entry {
  DType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<Entry, 15> kTypes{{{DType::f64, "F64", 8},
                                        {DType::f32, "F32", 4},
                                        {DType::f16, "F16", 2},
                                        {DType::bf16, "BF16", 2},
                                        {DType::f8_e4m3, "F8_E4M3", 1},
                                        {DType::f8_e5m2, "F8_E5M2", 1},
                                        {DType::i64, "I64", 8},
                                        {DType::i32, "I32", 4},
                                        {DType::i16, "I16", 2},
                                        {DType::i8, "I8", 1},
                                        {DType::u64, "U64", 8},
                                        {DType::u32, "U32", 4},
                                        {DType::u16, "U16", 2},
                                        {DType::u8, "U8", 1},
                                        {DType::boolean, "BOOL", 1}}};

}  // namespace

std::size_t size_of(DType type) {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

std::string_view name_of(DType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Entry& entry : kTypes) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

bool is_float_weight(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

}  // namespace pergola
