#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <random>
#include <vector>

#include "backend/reference/delta_rule.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using reference::delta_rule_chunked;
using reference::delta_rule_recurrent;
using reference::DeltaRuleInputs;

/// Random inputs of one head as a layer produces them: unit keys, scaled queries, decay and write strength of wide
/// range.
template <typename Real>
struct Head {
  std::int64_t key_dim = 16;
  std::int64_t value_dim = 24;
  std::vector<Real> q, k, v, g, beta, state;

  Head(std::int64_t tokens, double decay, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    const auto fill = [&](std::vector<Real>& out, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<Real>(normal(generator)));
    };
    fill(q, tokens * key_dim);
    fill(k, tokens * key_dim);
    fill(v, tokens * value_dim);
    fill(state, key_dim * value_dim);
    for (std::int64_t t = 0; t < tokens; ++t) {
      normalize(&q[static_cast<std::size_t>(t * key_dim)], 1 / std::sqrt(static_cast<double>(key_dim)));
      normalize(&k[static_cast<std::size_t>(t * key_dim)], 1);
      g.push_back(static_cast<Real>(decay * uniform(generator)));
      beta.push_back(static_cast<Real>(uniform(generator)));
    }
  }

  void normalize(Real* x, double factor) const {
    double sum = 0;
    for (std::int64_t i = 0; i < key_dim; ++i) sum += x[i] * x[i];
    for (std::int64_t i = 0; i < key_dim; ++i) x[i] = static_cast<Real>(x[i] * factor / std::sqrt(sum));
  }

  DeltaRuleInputs<Real> inputs(std::int64_t first, std::int64_t tokens) const {
    DeltaRuleInputs<Real> in{tokens, key_dim, value_dim};
    in.q = q.data() + first * key_dim;
    in.k = k.data() + first * key_dim;
    in.v = v.data() + first * value_dim;
    in.q_stride = in.k_stride = key_dim;
    in.v_stride = value_dim;
    in.g = g.data() + first;
    in.beta = beta.data() + first;
    return in;
  }
};

struct Case {
  std::int64_t tokens;
  double decay;
};

void PrintTo(const Case& length, std::ostream* out) {
  *out << length.tokens << " tokens of decay " << length.decay;
}

class DeltaRule : public ::testing::TestWithParam<Case> {};

TEST_P(DeltaRule, ChunkedEqualsRecurrentInDouble) {
  const Head<double> head(GetParam().tokens, GetParam().decay, 1);
  const auto in = head.inputs(0, GetParam().tokens);
  std::vector<double> state = head.state;
  std::vector<double> out(head.v.size());
  delta_rule_recurrent(in, state.data(), out.data(), head.value_dim);
  for (const std::int64_t chunk : {1, 16, 32, 64, 128}) {
    std::vector<double> chunked_state = head.state;
    std::vector<double> chunked(head.v.size());
    delta_rule_chunked(in, chunk, chunked_state.data(), chunked.data(), head.value_dim);
    EXPECT_LT(testing::relative_error(chunked, out), 1e-13) << "chunk " << chunk;
    EXPECT_LT(testing::relative_error(chunked_state, state), 1e-13) << "chunk " << chunk;
  }
}

TEST_P(DeltaRule, ChunkedEqualsRecurrentInFloat) {
  const Head<float> head(GetParam().tokens, GetParam().decay, 2);
  const auto in = head.inputs(0, GetParam().tokens);
  std::vector<float> state = head.state;
  std::vector<float> chunked_state = head.state;
  std::vector<float> out(head.v.size());
  std::vector<float> chunked(head.v.size());
  delta_rule_recurrent(in, state.data(), out.data(), head.value_dim);
  delta_rule_chunked(in, 64, chunked_state.data(), chunked.data(), head.value_dim);
  EXPECT_LT(testing::relative_error(chunked, out), 1e-5);
  EXPECT_LT(testing::relative_error(chunked_state, state), 1e-5);
}

TEST_P(DeltaRule, RecurrentDoesNotDependOnWhereAPromptIsCut) {
  const std::int64_t tokens = GetParam().tokens;
  const Head<float> head(tokens, GetParam().decay, 3);
  std::vector<float> state = head.state;
  std::vector<float> out(head.v.size());
  delta_rule_recurrent(head.inputs(0, tokens), state.data(), out.data(), head.value_dim);
  std::vector<float> pieces_state = head.state;
  std::vector<float> pieces(head.v.size());
  for (std::int64_t first = 0, length = 1; first < tokens; first += length, length = length * 2 + 1) {
    const std::int64_t count = std::min(length, tokens - first);
    delta_rule_recurrent(head.inputs(first, count), pieces_state.data(), pieces.data() + first * head.value_dim,
                         head.value_dim);
  }
  EXPECT_EQ(pieces, out);
  EXPECT_EQ(pieces_state, state);
}

// Decay near zero forgets nothing, -50 a token forgets everything at once and underflows within a chunk.
INSTANTIATE_TEST_SUITE_P(Lengths, DeltaRule,
                         ::testing::Values(Case{1, -0.3}, Case{3, -0.3}, Case{4, -1e-6}, Case{5, -50}, Case{63, -0.1},
                                           Case{64, -1e-6}, Case{65, -50}, Case{200, -0.05}),
                         [](const auto& length) { return std::to_string(length.param.tokens) + "Tokens"; });

TEST(DeltaRule, FollowsItsFormulaOnOneToken) {
  // key_dim 2, value_dim 1: S = (2, 3), k = (1, 0), q = (0.5, 0.5), v = 5, alpha = 0.5, beta = 0.25.
  const double q[] = {0.5, 0.5};
  const double k[] = {1, 0};
  const double v = 5;
  const double g = std::log(0.5);
  const double beta = 0.25;
  double state[] = {2, 3};
  double out = 0;
  delta_rule_recurrent(DeltaRuleInputs<double>{1, 2, 1, q, k, &v, 2, 2, 1, &g, &beta}, state, &out, 1);
  // d = 0.25 * (5 - 0.5 * 2) = 1; S = (1 + 1, 1.5); o = 0.5 * 2 + 0.5 * 1.5.
  EXPECT_NEAR(state[0], 2, 1e-15);
  EXPECT_NEAR(state[1], 1.5, 1e-15);
  EXPECT_NEAR(out, 1.75, 1e-15);
}

}  // namespace
}  // namespace pergola
