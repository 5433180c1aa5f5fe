#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "engine/selection.h"
#include "format/generation_config.h"

namespace pergola {
namespace {

using Floats = std::vector<float>;

std::int32_t sample_once(const SamplingOptions& options, Floats logits) {
  Sampler sampler(options, static_cast<std::int64_t>(logits.size()));
  return sampler.sample(logits);
}

SamplingOptions greedy() {
  return {.temperature = 0.0};
}

Floats random_logits(std::size_t count, std::uint64_t seed, double spread) {
  RandomStream random(seed);
  Floats logits(count);
  for (float& logit : logits) {
    // A sum of uniforms is close enough to a normal distribution.
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += random.uniform();
    logit = static_cast<float>(spread * sum);
  }
  return logits;
}

// Steps 5 to 8 of SamplingOptions by sorting: the definition that the sampler is tested against.
std::vector<double> expected_probabilities(const SamplingOptions& options, const Floats& logits) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> weights(logits.size());
  double total = 0.0;
  for (const std::size_t i : order) {
    weights[i] = std::exp((double{logits[i]} - double{logits[order[0]]}) / options.temperature);
    total += weights[i];
  }
  double before = 0.0;
  double kept = 0.0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    double& weight = weights[order[rank]];
    const bool in_share = rank == 0 || before < options.top_p * total || options.top_p == 1.0;
    before += weight;
    if (!in_share || weight < options.min_p) weight = 0.0;
    kept += weight;
  }
  for (double& weight : weights) weight /= kept;
  return weights;
}

// Draws many tokens and compares their counts with the expected probabilities by a chi-square test.
void expect_distribution(SamplingOptions options, const Floats& logits, int draws = 10000) {
  options.seed = 7;
  const std::vector<double> expected = expected_probabilities(options, logits);
  Sampler sampler(options, static_cast<std::int64_t>(logits.size()));
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    Floats copy = logits;
    ++counts[static_cast<std::size_t>(sampler.sample(copy))];
  }
  double chi_square = 0.0;
  double rare_expected = 0.0;
  int rare_count = 0;
  int cells = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double mean = expected[i] * draws;
    if (expected[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was dropped and drawn";
    } else if (mean < 10.0) {
      rare_expected += mean;
      rare_count += counts[i];
    } else {
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
      ++cells;
    }
  }
  if (rare_expected > 10.0) {
    chi_square += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
    ++cells;
  }
  // Mean and deviation of chi-square with n cells are about n and sqrt(2 n): five deviations are a one-in-a-million
  // miss.
  EXPECT_LT(chi_square, cells + 5.0 * std::sqrt(2.0 * cells) + 5.0);
}

TEST(Sampler, GreedyTakesTheLargestAndTheFirstAmongEquals) {
  EXPECT_EQ(sample_once(greedy(), {1.0f, 3.0f, 2.0f}), 1);
  EXPECT_EQ(sample_once(greedy(), {1.0f, 3.0f, 3.0f, 3.0f}), 1);
  EXPECT_EQ(sample_once(greedy(), {-5.0f, -4.0f}), 1);
}

TEST(Sampler, TemperatureDistribution) {
  const Floats logits = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f};
  expect_distribution({.temperature = 1.0}, logits);
  expect_distribution({.temperature = 0.3}, logits);
  expect_distribution({.temperature = 5.0}, logits);
}

TEST(Sampler, TinyTemperatureIsGreedy) {
  for (const double temperature : {1e-3, 1e-30, 1e-40, 1e-300}) {
    EXPECT_EQ(sample_once({.temperature = temperature}, {1.0f, 1.1f, 0.0f}), 1);
  }
}

TEST(Sampler, TopK) {
  const Floats logits = random_logits(300, 1, 2.0);
  expect_distribution({.top_k = 1}, logits);
  expect_distribution({.top_k = 7}, logits);
  expect_distribution({.top_k = 299}, logits);
  expect_distribution({.top_k = 1000}, logits);
}

TEST(Sampler, TopP) {
  const Floats logits = random_logits(300, 2, 2.0);
  for (const double p : {0.0, 0.1, 0.5, 0.9, 0.99}) expect_distribution({.top_p = p}, logits);
}

TEST(Sampler, MinP) {
  const Floats logits = random_logits(300, 3, 2.0);
  for (const double p : {0.01, 0.2, 1.0}) expect_distribution({.min_p = p}, logits);
}

TEST(Sampler, FiltersTogether) {
  const Floats logits = random_logits(2000, 4, 3.0);
  expect_distribution({.temperature = 0.6, .top_k = 20, .top_p = 0.95}, logits);
  expect_distribution({.temperature = 1.5, .top_k = 50, .top_p = 0.8, .min_p = 0.1}, logits);
}

TEST(Sampler, TopPIsAShareOfWhatTopKLeft) {
  // Probabilities 0.4, 0.3, 0.2, 0.1. Of the first three 0.4 is 0.444 and 0.7 is 0.777, so a share of 0.75 needs two.
  const Floats logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  std::set<std::int32_t> drawn;
  Sampler sampler({.top_k = 3, .top_p = 0.75, .seed = 1}, 4);
  for (int i = 0; i < 1000; ++i) {
    Floats copy = logits;
    drawn.insert(sampler.sample(copy));
  }
  EXPECT_EQ(drawn, (std::set<std::int32_t>{0, 1}));
}

TEST(Sampler, EqualTokensAreCutByTheirIds) {
  std::set<std::int32_t> drawn;
  Sampler sampler({.top_k = 3, .seed = 1}, 6);
  for (int i = 0; i < 1000; ++i) {
    Floats logits = {1.0f, 2.0f, 1.0f, 1.0f, 1.0f, -1.0f};
    drawn.insert(sampler.sample(logits));
  }
  EXPECT_EQ(drawn, (std::set<std::int32_t>{0, 1, 2}));
}

TEST(Selection, FindsTheLargestOfRandomLogits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Floats logits = random_logits(1000, seed, 10.0);
    for (float& logit : logits) logit = std::round(logit);  // so that there are equals
    std::vector<Candidate> sorted;
    for (const float logit : logits) sorted.push_back({static_cast<std::int32_t>(sorted.size()), logit});
    std::ranges::stable_sort(sorted, std::greater<>(), &Candidate::logit);
    for (const std::size_t count : {1, 2, 17, 500, 999, 1000}) {
      std::vector<Candidate> candidates(count);
      select_largest(logits, candidates);
      std::vector<Candidate> expected(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
      std::ranges::sort(expected, {}, &Candidate::token);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(candidates[i].token, expected[i].token);
    }
  }
}

TEST(Selection, KeepsTheLargestShare) {
  Floats weights = {0.25f, 1.0f, 0.0f, 0.25f, 0.25f, 0.25f};
  keep_largest_share(weights, 0.75);
  EXPECT_EQ(weights, (Floats{0.25f, 1.0f, 0.0f, 0.25f, 0.0f, 0.0f}));
  weights = {1e-40f, 1e-41f, 1e-40f};  // subnormal ones are ordered too
  keep_largest_share(weights, 0.9);
  EXPECT_EQ(weights, (Floats{1e-40f, 0.0f, 1e-40f}));
  weights = {0.5f, 0.5f};
  keep_largest_share(weights, 0.0);
  EXPECT_EQ(weights, (Floats{0.5f, 0.0f}));
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndAnswer) {
  SamplingOptions options = greedy();
  options.repetition_penalty = 2.0;
  Sampler sampler(options, 4);
  sampler.begin(std::vector<std::int32_t>{0});
  Floats logits = {3.0f, 2.0f, 1.6f, -1.0f};
  EXPECT_EQ(sampler.sample(logits), 1);  // 3 / 2 is below 2
  sampler.accept(1);
  logits = {3.0f, 2.0f, 1.6f, -1.0f};
  EXPECT_EQ(sampler.sample(logits), 2);
  logits = {-1.0f, -1.5f, -1.9f, -3.0f};  // negative ones are multiplied: -2, -3
  EXPECT_EQ(sampler.sample(logits), 2);
}

TEST(Sampler, RepetitionPenaltyDoesNotGrowWithTheCount) {
  SamplingOptions options = greedy();
  options.repetition_penalty = 2.0;
  Sampler sampler(options, 2);
  for (int i = 0; i < 5; ++i) sampler.accept(0);
  Floats logits = {3.0f, 1.4f};
  EXPECT_EQ(sampler.sample(logits), 0);  // 1.5
}

TEST(Sampler, FrequencyPenaltyGrowsWithTheCountInTheAnswerOnly) {
  SamplingOptions options = greedy();
  options.frequency_penalty = 0.5;
  Sampler sampler(options, 2);
  sampler.begin(std::vector<std::int32_t>{0, 0, 0, 0});
  Floats logits = {1.2f, 0.0f};
  EXPECT_EQ(sampler.sample(logits), 0);
  sampler.accept(0);
  sampler.accept(0);
  logits = {1.2f, 0.0f};
  EXPECT_EQ(sampler.sample(logits), 0);  // 0.2
  sampler.accept(0);
  logits = {1.2f, 0.0f};
  EXPECT_EQ(sampler.sample(logits), 1);  // -0.3
}

TEST(Sampler, PresencePenaltyIsTakenOnce) {
  SamplingOptions options = greedy();
  options.presence_penalty = 1.0;
  Sampler sampler(options, 2);
  sampler.begin(std::vector<std::int32_t>{0});
  for (int i = 0; i < 5; ++i) sampler.accept(0);
  Floats logits = {1.1f, 0.0f};
  EXPECT_EQ(sampler.sample(logits), 0);
  logits = {0.9f, 0.0f};
  EXPECT_EQ(sampler.sample(logits), 1);
}

TEST(Sampler, LogitBiasComesBeforeThePenalties) {
  SamplingOptions options = greedy();
  options.logit_bias = {{0, 4.0f}, {1, -100.0f}};
  EXPECT_EQ(sample_once(options, {0.0f, 50.0f, 3.0f}), 0);
  options.repetition_penalty = 2.0;
  Sampler sampler(options, 3);
  sampler.accept(0);
  Floats logits = {0.0f, 0.0f, 3.0f};
  EXPECT_EQ(sampler.sample(logits), 2);  // (0 + 4) / 2 is below 3; 0 / 2 + 4 would not be
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  auto mask = std::make_shared<TokenMask>(130);
  for (std::int64_t id = 60; id < 130; ++id) mask->forbid(id);
  mask->forbid(3);
  mask->allow(64);
  Sampler sampler({.temperature = 100.0, .seed = 3}, 130, mask);
  std::set<std::int32_t> drawn;
  for (int i = 0; i < 5000; ++i) {
    Floats logits(130, 1.0f);
    logits[100] = 1000.0f;
    drawn.insert(sampler.sample(logits));
  }
  EXPECT_EQ(drawn.size(), 60u);
  EXPECT_EQ(drawn.count(3), 0u);
  EXPECT_EQ(drawn.count(64), 1u);
  EXPECT_EQ(*drawn.rbegin(), 64);
  EXPECT_TRUE(mask->allows(64));
  EXPECT_FALSE(mask->allows(65));
}

TEST(Sampler, MaskThatAllowsNothingIsAnError) {
  Sampler sampler(greedy(), 3, std::make_shared<TokenMask>(3, false));
  Floats logits(3, 1.0f);
  EXPECT_THROW(sampler.sample(logits), Error);
}

TEST(Sampler, LogitsThatAreNotNumbersAreAnError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(sample_once({}, {1.0f, nan}), Error);
  EXPECT_THROW(sample_once({}, {nan, 1.0f}), Error);
  EXPECT_THROW(sample_once({}, {infinity, 1.0f}), Error);
  EXPECT_THROW(sample_once({}, {-infinity, -infinity}), Error);
}

TEST(Sampler, SameSeedSameTokens) {
  const Floats logits = random_logits(1000, 5, 2.0);
  const auto draw = [&](std::uint64_t seed) {
    Sampler sampler({.seed = seed}, 1000);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 50; ++i) {
      Floats copy = logits;
      tokens.push_back(sampler.sample(copy));
    }
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Sampler, WithoutASeedItDrawsOne) {
  const Sampler first({}, 10);
  const Sampler second({}, 10);
  EXPECT_NE(first.seed(), second.seed());
  EXPECT_EQ(Sampler({.seed = 5}, 10).seed(), 5u);
}

TEST(RandomStream, IsSplitMix64) {
  // The published first outputs for seed 1234567.
  RandomStream random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(SamplingOptions, OutOfRangeIsNamed) {
  const auto expect_field = [](const SamplingOptions& options, const std::string& field) {
    try {
      validate(options, 100);
      ADD_FAILURE() << field << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.where().field, field);
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NO_THROW(validate({}, 100));
  for (const double bad : {-0.1, 101.0, nan}) expect_field({.temperature = bad}, "temperature");
  expect_field({.top_k = -1}, "top_k");
  for (const double bad : {-0.1, 1.1, nan}) {
    expect_field({.top_p = bad}, "top_p");
    expect_field({.min_p = bad}, "min_p");
  }
  for (const double bad : {0.0, -1.0, nan, 1e9}) expect_field({.repetition_penalty = bad}, "repetition_penalty");
  for (const double bad : {-2.1, 2.1, nan}) {
    expect_field({.frequency_penalty = bad}, "frequency_penalty");
    expect_field({.presence_penalty = bad}, "presence_penalty");
  }
  expect_field({.logit_bias = {{100, 1.0f}}}, "logit_bias");
  expect_field({.logit_bias = {{-1, 1.0f}}}, "logit_bias");
  expect_field({.logit_bias = {{1, 101.0f}}}, "logit_bias");
}

TEST(SamplingOptions, DefaultsComeFromTheGenerationConfig) {
  GenerationConfig config;
  EXPECT_EQ(sampling_defaults(config), SamplingOptions());
  config.do_sample = true;
  config.temperature = 0.6;
  config.top_k = 20;
  config.top_p = 0.95;
  config.min_p = 0.05;
  config.repetition_penalty = 1.05;
  config.presence_penalty = 1.5;
  config.frequency_penalty = 0.5;
  EXPECT_EQ(sampling_defaults(config), (SamplingOptions{.temperature = 0.6,
                                                        .top_k = 20,
                                                        .top_p = 0.95,
                                                        .min_p = 0.05,
                                                        .repetition_penalty = 1.05,
                                                        .frequency_penalty = 0.5,
                                                        .presence_penalty = 1.5}));
  config.do_sample = false;
  EXPECT_EQ(sampling_defaults(config).temperature, 0.0);
}

}  // namespace
}  // namespace pergola
