#pragma once

#include <cstdint>

namespace pergola::reference {

/// Inputs of the gated delta rule of one value head over `tokens` tokens. q and k are already normalised, q is scaled
/// by 1/sqrt(key_dim). Rows are `*_stride` elements apart; gates are one value a token.
template <typename Real>
struct DeltaRuleInputs {
  std::int64_t tokens = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  const Real* q = nullptr;  ///< [tokens, key_dim]
  const Real* k = nullptr;  ///< [tokens, key_dim]
  const Real* v = nullptr;  ///< [tokens, value_dim]
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  const Real* g = nullptr;     ///< log decay, <= 0
  const Real* beta = nullptr;  ///< in (0, 1)
};

/// The definition, token after token. With S [key_dim, value_dim] and alpha = exp(g):
///   d = beta * (v - alpha * S^T k);  S <- alpha * S + k d^T;  o = S^T q.
/// Sums are double; S is rounded to Real after every token, so the result does not depend on how a prompt is cut into
/// pieces. `out` [tokens, value_dim]. Instantiated for float and double.
template <typename Real>
void delta_rule_recurrent(const DeltaRuleInputs<Real>& in, Real* state, Real* out, std::int64_t out_stride);

/// The same in chunks of `chunk` tokens (the WY form that prefill kernels use), equal in exact arithmetic. With gamma
/// the running sum of g inside a chunk and D_ij = exp(gamma_i - gamma_j):
///   (I + M) X = beta * (v - e^gamma k S),  M_ij = beta_i (k_i.k_j) D_ij for j < i;
///   o_i = e^gamma_i S^T q_i + sum_{j<=i} (q_i.k_j) D_ij x_j;  S <- e^gamma_n S + sum_i e^(gamma_n - gamma_i) k_i
///   x_i^T.
template <typename Real>
void delta_rule_chunked(const DeltaRuleInputs<Real>& in, std::int64_t chunk, Real* state, Real* out,
                        std::int64_t out_stride);

}  // namespace pergola::reference
