#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pergola {

/// Instruction-set levels of CPU kernels, narrowest first. A level includes the ones before it.
enum class Isa : unsigned char {
  scalar,  ///< portable C++
  avx2,    ///< AVX2, FMA, F16C, BMI2
  avx512,  ///< AVX-512 F, BW, VL, DQ, CD, VNNI, VBMI, VBMI2, GFNI
  amx,     ///< AVX-512 with FP16, and AMX tiles for int8 and bf16
};

/// "scalar", "avx2", "avx512", "amx".
std::string_view name_of(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

/// What this processor and its operating system offer.
struct CpuFeatures {
  Isa best = Isa::scalar;
  bool avx_vnni = false;     ///< VNNI on 256-bit registers without AVX-512
  bool avx512_fp16 = false;  ///< arithmetic on binary16
  bool amx_bf16 = false;
  std::string model;  ///< the processor's own name
};

/// Detected once. Asks the operating system for permission to use AMX tiles where the processor has them.
const CpuFeatures& cpu_features();

}  // namespace pergola
