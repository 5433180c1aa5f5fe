#include "backend/reference/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pergola::reference {

namespace {

/// out[v] = sum_k x[k] * S[k][v].
template <typename Real>
void read_state(const Real* state, const Real* x, std::int64_t key_dim, std::int64_t value_dim, double* out) {
  std::fill(out, out + value_dim, 0.0);
  for (std::int64_t k = 0; k < key_dim; ++k) {
    for (std::int64_t v = 0; v < value_dim; ++v) out[v] += static_cast<double>(x[k]) * state[k * value_dim + v];
  }
}

template <typename Real>
double dot_rows(const Real* a, const Real* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

/// One chunk: `in` holds its tokens only.
template <typename Real>
void run_chunk(const DeltaRuleInputs<Real>& in, Real* state, Real* out, std::int64_t out_stride) {
  const std::int64_t n = in.tokens;
  const std::int64_t values = in.value_dim;
  std::vector<double> gamma(static_cast<std::size_t>(n));
  std::vector<double> x(static_cast<std::size_t>(n * values));
  std::vector<double> read(static_cast<std::size_t>(values));
  const auto at = [](std::vector<double>& v, std::int64_t i) { return v.data() + i; };
  const auto decay = [&](std::int64_t i, std::int64_t j) {
    return std::exp(gamma[static_cast<std::size_t>(i)] - gamma[static_cast<std::size_t>(j)]);
  };

  double running = 0;
  for (std::int64_t i = 0; i < n; ++i) *at(gamma, i) = running += in.g[i];

  // Forward substitution: x_i = beta_i (v_i - e^gamma_i S^T k_i) - sum_{j<i} M_ij x_j.
  for (std::int64_t i = 0; i < n; ++i) {
    const Real* key = in.k + i * in.k_stride;
    const double beta = in.beta[i];
    double* row = at(x, i * values);
    read_state(state, key, in.key_dim, values, read.data());
    for (std::int64_t v = 0; v < values; ++v)
      row[v] = beta * (in.v[i * in.v_stride + v] - std::exp(*at(gamma, i)) * *at(read, v));
    for (std::int64_t j = 0; j < i; ++j) {
      const double m = beta * dot_rows(key, in.k + j * in.k_stride, in.key_dim) * decay(i, j);
      for (std::int64_t v = 0; v < values; ++v) row[v] -= m * x[static_cast<std::size_t>(j * values + v)];
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const Real* query = in.q + i * in.q_stride;
    read_state(state, query, in.key_dim, values, read.data());
    for (std::int64_t v = 0; v < values; ++v) *at(read, v) *= std::exp(*at(gamma, i));
    for (std::int64_t j = 0; j <= i; ++j) {
      const double p = dot_rows(query, in.k + j * in.k_stride, in.key_dim) * decay(i, j);
      for (std::int64_t v = 0; v < values; ++v) *at(read, v) += p * x[static_cast<std::size_t>(j * values + v)];
    }
    for (std::int64_t v = 0; v < values; ++v) out[i * out_stride + v] = static_cast<Real>(*at(read, v));
  }
  for (std::int64_t k = 0; k < in.key_dim; ++k) {
    for (std::int64_t v = 0; v < values; ++v) *at(read, v) = std::exp(*at(gamma, n - 1)) * state[k * values + v];
    for (std::int64_t i = 0; i < n; ++i) {
      const double weight = decay(n - 1, i) * in.k[i * in.k_stride + k];
      for (std::int64_t v = 0; v < values; ++v) *at(read, v) += weight * x[static_cast<std::size_t>(i * values + v)];
    }
    for (std::int64_t v = 0; v < values; ++v) state[k * values + v] = static_cast<Real>(*at(read, v));
  }
}

}  // namespace

template <typename Real>
void delta_rule_recurrent(const DeltaRuleInputs<Real>& in, Real* state, Real* out, std::int64_t out_stride) {
  const std::int64_t values = in.value_dim;
  std::vector<double> read(static_cast<std::size_t>(values));
  std::vector<double> delta(static_cast<std::size_t>(values));
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    const Real* key = in.k + t * in.k_stride;
    const double alpha = std::exp(static_cast<double>(in.g[t]));
    const double beta = in.beta[t];
    read_state(state, key, in.key_dim, values, read.data());
    for (std::int64_t v = 0; v < values; ++v) {
      const auto i = static_cast<std::size_t>(v);
      delta[i] = beta * (in.v[t * in.v_stride + v] - alpha * read[i]);
    }
    for (std::int64_t k = 0; k < in.key_dim; ++k) {
      Real* row = state + k * values;
      const double weight = key[k];
      for (std::int64_t v = 0; v < values; ++v)
        row[v] = static_cast<Real>(alpha * row[v] + weight * delta[static_cast<std::size_t>(v)]);
    }
    read_state(state, in.q + t * in.q_stride, in.key_dim, values, read.data());
    for (std::int64_t v = 0; v < values; ++v)
      out[t * out_stride + v] = static_cast<Real>(read[static_cast<std::size_t>(v)]);
  }
}

template <typename Real>
void delta_rule_chunked(const DeltaRuleInputs<Real>& in, std::int64_t chunk, Real* state, Real* out,
                        std::int64_t out_stride) {
  for (std::int64_t start = 0; start < in.tokens; start += chunk) {
    DeltaRuleInputs<Real> part = in;
    part.tokens = std::min(chunk, in.tokens - start);
    part.q += start * in.q_stride;
    part.k += start * in.k_stride;
    part.v += start * in.v_stride;
    part.g += start;
    part.beta += start;
    run_chunk(part, state, out + start * out_stride, out_stride);
  }
}

template void delta_rule_recurrent(const DeltaRuleInputs<float>&, float*, float*, std::int64_t);
template void delta_rule_recurrent(const DeltaRuleInputs<double>&, double*, double*, std::int64_t);
template void delta_rule_chunked(const DeltaRuleInputs<float>&, std::int64_t, float*, float*, std::int64_t);
template void delta_rule_chunked(const DeltaRuleInputs<double>&, std::int64_t, double*, double*, std::int64_t);

}  // namespace pergola::reference
