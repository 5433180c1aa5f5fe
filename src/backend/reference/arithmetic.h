#pragma once

#include <cmath>
#include <cstdint>

namespace pergola::reference {

/// Sum of a[i] * b[i] in double: eight partial sums (index modulo 8), folded by halves. The fixed order makes results
/// repeatable, and lets a compiler use vector instructions without reordering anything.
inline double dot(const float* a, const float* b, std::int64_t n) {
  double partial[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) partial[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
  }
  for (; i < n; ++i) partial[i % 8] += static_cast<double>(a[i]) * b[i];
  for (int half = 4; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  return partial[0];
}

inline double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

inline double silu(double x) {
  return x * sigmoid(x);
}

/// log(1 + exp(x)) without overflow.
inline double softplus(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

/// The tanh approximation of GELU, as Gemma uses it.
inline double gelu_tanh(double x) {
  constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
  return 0.5 * x * (1.0 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
}

/// out[i] = x[i] * rsqrt(mean(x^2) + eps) * weight[i]; out may be x.
inline void rms_normalize(const float* x, const float* weight, double eps, std::int64_t n, float* out) {
  const double scale = 1.0 / std::sqrt(dot(x, x, n) / static_cast<double>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

}  // namespace pergola::reference
