#pragma once

#include <array>
#include <cstdint>

namespace pergola::opencl {

/// How a kernel holds activations and multiplies: ARITHMETIC of kernels/trellis.h.
enum class Arithmetic : std::uint8_t { rounded = 0, unrounded = 1, int8 = 2, matrix = 3 };

/// One way to multiply trellis matrices: the build options of linear.cl, moe.cl and moe_decode.cl, and what the offline
/// gate (tools/xe_check.sh) requires of the compiled code on Xe2. A variant that is not in the table is never built.
struct Variant {
  int rows = 1;     ///< activation rows of a work-group
  int slab = 2048;  ///< inputs that it transforms at once in local memory
  Arithmetic arithmetic = Arithmetic::unrounded;
  int bytes = 1;          ///< of an activation on matrix units
  bool wide = false;      ///< 256 registers a thread in linear.cl
  int dpas = 0;           ///< matrix instructions of the loop over tiles, mul1
  double slots_mul1 = 0;  ///< most vector issue slots a weight at K = 4, counted as docs/opencl.md says
  double slots_mcg = 0;
  double slots_three_inst = 0;
};

/// Whether moe.cl, which multiplies two matrices in one kernel, takes 256 registers a thread.
constexpr bool wide_experts(const Variant& variant) {
  return variant.arithmetic == Arithmetic::matrix || (variant.arithmetic == Arithmetic::int8 && variant.rows == 16);
}

/// Inputs of one pick that moe_decode.cl transforms at once, in place of the variant's own slab.
inline constexpr int kDecodeDownSlab = 512;

inline constexpr std::array kVariants{
    // Exact values of the format.
    Variant{1, 2048, Arithmetic::rounded, 1, false, 0, 10.8, 17.0, 18.0},
    Variant{4, 1024, Arithmetic::rounded, 1, false, 0, 13.8, 20.0, 21.0},
    Variant{16, 512, Arithmetic::rounded, 1, false, 0, 26.0, 33.0, 34.0},
    // fp32 activations.
    Variant{1, 2048, Arithmetic::unrounded, 1, false, 0, 4.5, 11.9, 12.9},
    Variant{4, 1024, Arithmetic::unrounded, 1, false, 0, 7.6, 14.9, 15.9},
    Variant{16, 512, Arithmetic::unrounded, 1, false, 0, 20.2, 27.5, 28.5},
    // int8 activations without matrix units.
    Variant{1, 2048, Arithmetic::int8, 1, false, 0, 3.5, 11.9, 12.9},
    Variant{4, 1024, Arithmetic::int8, 1, false, 0, 6.6, 14.9, 15.9},
    Variant{16, 512, Arithmetic::int8, 1, false, 0, 20.2, 27.5, 28.5},
    // Matrix units: int8 activations, or 16 bits of them in two bytes.
    Variant{8, 512, Arithmetic::matrix, 1, false, 4, 2.7, 3.8, 4.6},
    Variant{16, 512, Arithmetic::matrix, 1, true, 8, 2.8, 3.85, 4.8},
    Variant{8, 512, Arithmetic::matrix, 2, true, 8, 2.7, 3.8, 4.6},
    Variant{16, 256, Arithmetic::matrix, 2, true, 16, 3.05, 3.85, 4.8},
};

}  // namespace pergola::opencl
