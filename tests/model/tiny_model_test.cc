#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "support/loaded_tiny.h"
#include "support/qwen_oracle.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::LoadedTiny;
using testing::ModelRunner;
using testing::random_tokens;
using testing::relative_error;
using testing::TinyQwen;

constexpr double kTolerance = 1e-5;  // of float activations, relative to the logits

struct Variant {
  std::string name;
  TinyQwen model;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

TinyQwen with(TinyQwen model, const std::function<void(TinyQwen&)>& change) {
  change(model);
  return model;
}

std::vector<Variant> variants() {
  using W = TinyQwen::Weights;
  const TinyQwen dense;
  const TinyQwen moe = with(dense, [](TinyQwen& m) {
    m.experts = 8;
    m.intermediate = 96;
  });
  return {
      {"Dense", dense},
      {"Bf16", with(dense, [](TinyQwen& m) { m.weights = W::bf16; })},
      {"FlatWithExtras", with(dense,
                              [](TinyQwen& m) {
                                m.nested = false;
                                m.extras = true;
                                m.prefix = "model.";
                              })},
      {"MlxPrefixTied", with(dense,
                             [](TinyQwen& m) {
                               m.prefix = "language_model.model.";
                               m.tied = true;
                             })},
      {"Exl3", with(dense, [](TinyQwen& m) { m.weights = W::exl3; })},
      {"Moe", moe},
      {"MoeFused", with(moe, [](TinyQwen& m) { m.fused_experts = true; })},
      {"MoeExl3", with(moe, [](TinyQwen& m) { m.weights = W::exl3; })},
      {"OneValueHeadPerKeyHead", with(dense, [](TinyQwen& m) { m.value_heads = 2; })},
      {"TwoValueHeadsPerKeyHead", with(dense, [](TinyQwen& m) { m.value_heads = 4; })},
      {"FourValueHeadsPerKeyHead", with(dense, [](TinyQwen& m) { m.value_heads = 8; })},
      {"WideRotationAndKernel", with(dense,
                                     [](TinyQwen& m) {
                                       m.partial_rotary = 1.0;
                                       m.conv_kernel = 3;
                                       m.kv_heads = 1;
                                     })},
  };
}

class TinyModel : public ::testing::TestWithParam<Variant> {};

TEST_P(TinyModel, LogitsAgreeWithTheOracle) {
  const TinyQwen& tiny = GetParam().model;
  LoadedTiny loaded(tiny);
  const std::vector<std::int32_t> tokens = random_tokens(21, tiny.vocab);
  const std::vector<double> expected = testing::oracle_logits(loaded.checkpoint, tiny, tokens);
  EXPECT_LT(relative_error(loaded.runner->sequence(0, tokens, 256), expected), kTolerance);
}

TEST_P(TinyModel, PiecewisePrefillAndDecodeContinueExactly) {
  const TinyQwen& tiny = GetParam().model;
  LoadedTiny loaded(tiny);
  const std::vector<std::int32_t> tokens = random_tokens(14, tiny.vocab);
  const std::vector<float> whole = loaded.runner->sequence(0, tokens, 256);
  for (const std::int64_t chunk : {1, 2, 3, 5})
    EXPECT_EQ(loaded.runner->sequence(0, tokens, chunk), whole) << "steps of " << chunk;
}

INSTANTIATE_TEST_SUITE_P(Variants, TinyModel, ::testing::ValuesIn(variants()),
                         [](const auto& variant) { return variant.param.name; });

TEST(TinyModelSteps, PromptsOfEveryLengthAgreeWithTheOracle) {
  const TinyQwen tiny;
  LoadedTiny loaded(tiny);
  const std::vector<std::int32_t> tokens = random_tokens(200, tiny.vocab);
  const std::vector<double> expected = testing::oracle_logits(loaded.checkpoint, tiny, tokens);
  for (const std::int64_t length : {1, 3, 4, 5, 63, 64, 65, 200}) {
    const std::span<const std::int32_t> prompt = std::span(tokens).first(static_cast<std::size_t>(length));
    const std::vector<double> part(expected.begin(), expected.begin() + length * tiny.vocab);
    EXPECT_LT(relative_error(loaded.runner->sequence(0, prompt, 256), part), kTolerance) << length << " tokens";
  }
}

TEST(TinyModelSteps, SequencesOfABatchDoNotSeeEachOther) {
  TinyQwen tiny;
  tiny.experts = 4;
  tiny.intermediate = 64;
  LoadedTiny loaded(tiny, 3, 40);
  const std::vector<std::vector<std::int32_t>> prompts{random_tokens(7, tiny.vocab, 1), random_tokens(1, tiny.vocab, 2),
                                                       random_tokens(12, tiny.vocab, 3)};
  std::vector<std::vector<float>> alone;
  for (const auto& prompt : prompts) alone.push_back(loaded.runner->sequence(0, prompt, 256));

  // Slots in another order than rows; then each sequence goes on by one token, so that prefill and decode rows mix
  // across steps.
  for (std::int64_t slot = 0; slot < 3; ++slot) loaded.runner->reset(slot);
  const auto head = [&](std::size_t s, std::size_t n) {
    return std::vector<std::int32_t>(prompts[s].begin(), prompts[s].begin() + static_cast<std::ptrdiff_t>(n));
  };
  const std::vector<ModelRunner::Piece> first{{2, head(0, 6)}, {1, head(2, 4)}};
  const std::vector<float> a = loaded.runner->step(first);
  const std::vector<ModelRunner::Piece> second{
      {0, prompts[1]}, {2, {prompts[0][6]}}, {1, {prompts[2].begin() + 4, prompts[2].end()}}};
  const std::vector<float> b = loaded.runner->step(second);

  const auto rows = [&](const std::vector<float>& logits, std::int64_t from, std::int64_t count) {
    return std::vector<float>(logits.begin() + from * tiny.vocab, logits.begin() + (from + count) * tiny.vocab);
  };
  EXPECT_EQ(rows(a, 0, 6), rows(alone[0], 0, 6));
  EXPECT_EQ(rows(a, 6, 4), rows(alone[2], 0, 4));
  EXPECT_EQ(rows(b, 0, 1), alone[1]);
  EXPECT_EQ(rows(b, 1, 1), rows(alone[0], 6, 1));
  EXPECT_EQ(rows(b, 2, 8), rows(alone[2], 4, 8));
}

TEST(TinyModelSteps, ALongSequenceLeavesNothingBehindForAShortOne) {
  const TinyQwen tiny;
  LoadedTiny loaded(tiny, 1, 100);
  const std::vector<std::int32_t> brief = random_tokens(5, tiny.vocab, 4);
  const std::vector<float> fresh = loaded.runner->sequence(0, brief, 256);
  loaded.runner->sequence(0, random_tokens(100, tiny.vocab, 5), 64);
  EXPECT_EQ(loaded.runner->sequence(0, brief, 256), fresh);
}

TEST(TinyModelSteps, APrefillChunkWithoutLogitsFillsTheCaches) {
  const TinyQwen tiny;
  LoadedTiny loaded(tiny);
  const std::vector<std::int32_t> tokens = random_tokens(9, tiny.vocab);
  const std::vector<float> whole = loaded.runner->sequence(0, tokens, 256);
  loaded.runner->reset(0);
  const ModelRunner::Piece prompt{0, {tokens.begin(), tokens.end() - 1}};
  loaded.runner->step_without_logits(std::span(&prompt, 1));
  const ModelRunner::Piece last{0, {tokens.back()}};
  EXPECT_EQ(loaded.runner->step(std::span(&last, 1)), std::vector<float>(whole.end() - tiny.vocab, whole.end()));
}

}  // namespace
}  // namespace pergola
