#include "eval/distribution.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pergola {
namespace {

std::size_t top(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  assert(!logits.empty());
  const float largest = logits[top(logits)];
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(logit - largest);  // each term in float: relative error 1e-7, far below what is measured
  return static_cast<double>(largest) + std::log(sum);
}

double token_loss(std::span<const float> logits, std::int32_t token) {
  return log_sum_exp(logits) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

Divergence divergence(std::span<const float> reference, std::span<const float> model) {
  assert(reference.size() == model.size());
  // Differences of 1e-7 nats matter here, so every term is computed in double.
  const auto normaliser = [](std::span<const float> logits, float largest) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - static_cast<double>(largest));
    return static_cast<double>(largest) + std::log(sum);
  };
  const std::size_t reference_top = top(reference);
  const std::size_t model_top = top(model);
  const double reference_sum = normaliser(reference, reference[reference_top]);
  const double model_sum = normaliser(model, model[model_top]);
  Divergence result{0, reference_top == model_top};
  for (std::size_t token = 0; token < reference.size(); ++token) {
    const double log_p = static_cast<double>(reference[token]) - reference_sum;
    const double log_q = static_cast<double>(model[token]) - model_sum;
    result.kl += std::exp(log_p) * (log_p - log_q);
  }
  return result;
}

}  // namespace pergola
