#include <cstring>

#include "backend/cpu/float_kernels.h"
#include "base/half.h"

namespace pergola {
namespace {

// Four lanes of the compilers' own vector type: SSE2 and NEON have them, other processors get plain loops.
typedef float Vec __attribute__((vector_size(16)));
typedef std::int32_t IntVec __attribute__((vector_size(16)));
constexpr int kWidth = 4;
constexpr int kTileRows = 4;
constexpr int kTileVectors = 2;
constexpr int kDotRows = 2;
constexpr int kDotColumns = 4;
constexpr int kStateVectors = 2;
constexpr std::int64_t kStatePrefetchRows = 8;

struct HalfBits {
  std::uint16_t value;
};
struct BFloatBits {
  std::uint16_t value;
};

// clang-format off
Vec v_set(float x) { return Vec{x, x, x, x}; }
Vec v_zero() { return Vec{}; }
Vec v_add(Vec a, Vec b) { return a + b; }
Vec v_sub(Vec a, Vec b) { return a - b; }
Vec v_mul(Vec a, Vec b) { return a * b; }
Vec v_div(Vec a, Vec b) { return a / b; }
Vec v_fma(Vec a, Vec b, Vec c) { return a * b + c; }
// clang-format on
Vec v_max(Vec a, Vec b) {
  return a > b ? a : b;
}  // b when one is NaN
Vec v_min(Vec a, Vec b) {
  return a < b ? a : b;
}

/// To the nearest integer, for magnitudes below 2^22.
Vec v_round(Vec a) {
  const Vec shift = v_set(12582912.0f);
  return (a + shift) - shift;
}

/// x 2^n for integral n, in two steps so that neither factor leaves the normal range.
Vec v_scale_by_power_of_two(Vec x, Vec n) {
  const Vec in_range = n > v_set(-200.0f) ? n : v_set(0.0f);  // NaN becomes 0: x is NaN then
  const IntVec whole = __builtin_convertvector(in_range, IntVec);
  const IntVec half = whole >> 1;
  const IntVec first = (half + 127) << 23;
  const IntVec second = (whole - half + 127) << 23;
  Vec factors[2];
  std::memcpy(&factors[0], &first, sizeof first);
  std::memcpy(&factors[1], &second, sizeof second);
  return x * factors[0] * factors[1];
}

Vec v_load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

Vec v_load(const float* p, int lanes) {
  Vec v{};
  std::memcpy(&v, p, static_cast<std::size_t>(lanes) * sizeof(float));
  return v;
}

// clang-format off
void v_store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
void v_store(float* p, Vec v, int lanes) { std::memcpy(p, &v, static_cast<std::size_t>(lanes) * sizeof(float)); }
float widen(std::uint16_t bits, HalfBits) { return pergola::to_float(Half{bits}); }
float widen(std::uint16_t bits, BFloatBits) { return pergola::to_float(BFloat16{bits}); }
std::uint16_t narrow(float value, HalfBits) { return pergola::to_half(value).bits; }
std::uint16_t narrow(float value, BFloatBits) { return pergola::to_bfloat16(value).bits; }
// clang-format on

template <typename Bits>
Vec load_bits(const Bits* p, int lanes) {
  std::uint16_t bits[kWidth];
  std::memcpy(bits, p, static_cast<std::size_t>(lanes) * 2);
  Vec v{};
  for (int lane = 0; lane < lanes; ++lane) v[lane] = widen(bits[lane], Bits{});
  return v;
}

template <typename Bits>
void store_bits(Bits* p, Vec v, int lanes) {
  std::uint16_t bits[kWidth];
  for (int lane = 0; lane < lanes; ++lane) bits[lane] = narrow(v[lane], Bits{});
  std::memcpy(p, bits, static_cast<std::size_t>(lanes) * 2);
}

// clang-format off
Vec v_load(const HalfBits* p) { return load_bits(p, kWidth); }
Vec v_load(const HalfBits* p, int lanes) { return load_bits(p, lanes); }
Vec v_load(const BFloatBits* p) { return load_bits(p, kWidth); }
Vec v_load(const BFloatBits* p, int lanes) { return load_bits(p, lanes); }
void v_store(HalfBits* p, Vec v) { store_bits(p, v, kWidth); }
void v_store(HalfBits* p, Vec v, int lanes) { store_bits(p, v, lanes); }
void v_store(BFloatBits* p, Vec v) { store_bits(p, v, kWidth); }
void v_store(BFloatBits* p, Vec v, int lanes) { store_bits(p, v, lanes); }
float v_sum(Vec a) { return (a[0] + a[1]) + (a[2] + a[3]); }
void v_sum4(float* out, const Vec* v) { for (int i = 0; i < 4; ++i) out[i] = v_sum(v[i]); }
// clang-format on

float v_largest(Vec a) {
  const float low = a[0] > a[1] ? a[0] : a[1];
  const float high = a[2] > a[3] ? a[2] : a[3];
  return low > high ? low : high;
}

void transpose_block(const float* in, std::int64_t ld_in, float* out, std::int64_t ld_out) {
  for (int row = 0; row < kWidth; ++row) {
    for (int column = 0; column < kWidth; ++column) out[column * ld_out + row] = in[row * ld_in + column];
  }
}

void v_load4(const float* p, Vec* taps) {
  for (int tap = 0; tap < 4; ++tap) taps[tap] = Vec{p[tap], p[4 + tap], p[8 + tap], p[12 + tap]};
}

void v_prefetch(const float* p, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 16) __builtin_prefetch(p + i);
}

#include "backend/cpu/float_kernels_body.h"

constexpr FloatKernels kTable = make_table("portable");

}  // namespace

const FloatKernels& portable_float_kernels() {
  return kTable;
}

}  // namespace pergola
