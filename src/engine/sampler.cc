#include "engine/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace pergola {
namespace {

std::uint64_t seed_of(const SamplingOptions& options) {
  if (options.seed) return *options.seed;
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

// Index of the largest logit, the first among equals.
std::size_t largest(std::span<const float> logits) {
  std::size_t best = 0;
  bool all_numbers = true;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    all_numbers = all_numbers && !std::isnan(logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (!all_numbers) throw Error("the model's logits are not numbers");
  if (!std::isfinite(logits[best])) {
    throw Error(logits[best] > 0 ? "the model's logits are infinite" : "no token is left that may be sampled");
  }
  return best;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, std::int64_t vocab_size, std::shared_ptr<const TokenMask> mask)
    : options_(options), vocab_size_(vocab_size), mask_(std::move(mask)), seed_(seed_of(options)), random_(seed_) {
  validate(options, vocab_size);
  assert(mask_ == nullptr || mask_->size() == vocab_size);
  // Temperatures too small for a float are greedy.
  if (static_cast<float>(options.temperature) < std::numeric_limits<float>::min()) options_.temperature = 0.0;
  if (options.temperature > 0.0) candidates_.resize(static_cast<std::size_t>(std::min(options.top_k, vocab_size)));
  if (!has_penalties()) return;
  answer_counts_.resize(static_cast<std::size_t>(vocab_size));
  seen_.resize(static_cast<std::size_t>(vocab_size));
  seen_tokens_.reserve(static_cast<std::size_t>(vocab_size));
}

bool Sampler::has_penalties() const {
  return options_.repetition_penalty != 1.0 || options_.frequency_penalty != 0.0 || options_.presence_penalty != 0.0;
}

void Sampler::note(std::int32_t token) {
  assert(token >= 0 && token < vocab_size_);
  const auto place = static_cast<std::size_t>(token);
  if (seen_[place]) return;
  seen_[place] = true;
  seen_tokens_.push_back(token);
}

void Sampler::begin(std::span<const std::int32_t> prompt) {
  if (!has_penalties()) return;
  for (const std::int32_t token : prompt) note(token);
}

void Sampler::accept(std::int32_t token) {
  if (!has_penalties()) return;
  note(token);
  ++answer_counts_[static_cast<std::size_t>(token)];
}

void Sampler::penalize(std::span<float> logits) const {
  const auto repetition = static_cast<float>(options_.repetition_penalty);
  for (const std::int32_t token : seen_tokens_) {
    const auto place = static_cast<std::size_t>(token);
    float& logit = logits[place];
    logit = logit > 0.0f ? logit / repetition : logit * repetition;
    if (const std::int32_t count = answer_counts_[place]; count > 0) {
      logit -= static_cast<float>(options_.frequency_penalty * count + options_.presence_penalty);
    }
  }
}

std::int32_t Sampler::sample(std::span<float> logits) {
  assert(static_cast<std::int64_t>(logits.size()) == vocab_size_);
  if (mask_ != nullptr) mask_->apply(logits);
  for (const auto& [token, bias] : options_.logit_bias) logits[static_cast<std::size_t>(token)] += bias;
  if (has_penalties()) penalize(logits);
  const std::size_t best = largest(logits);
  if (options_.temperature == 0.0) return static_cast<std::int32_t>(best);

  const float most = logits[best];
  std::span<float> weights = logits;
  if (!candidates_.empty()) {
    select_largest(logits, candidates_);
    weights = logits.first(candidates_.size());
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = candidates_[i].logit;
  }
  // Unnormalized probabilities: that of the most probable token is 1.
  const auto temperature = static_cast<float>(options_.temperature);
  for (float& weight : weights) weight = std::exp((weight - most) / temperature);
  if (options_.top_p < 1.0) keep_largest_share(weights, options_.top_p);
  if (options_.min_p > 0.0) {
    for (float& weight : weights) weight = weight < static_cast<float>(options_.min_p) ? 0.0f : weight;
  }
  const std::size_t drawn = draw(weights);
  return candidates_.empty() ? static_cast<std::int32_t>(drawn) : candidates_[drawn].token;
}

std::size_t Sampler::draw(std::span<const float> weights) {
  double total = 0.0;
  for (const float weight : weights) total += weight;
  const double target = random_.uniform() * total;
  double sum = 0.0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0.0f) continue;
    last = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return last;
}

}  // namespace pergola
