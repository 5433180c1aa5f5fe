// Every architecture against transformers' fp32 run: tests/data/architectures, made by
// tools/make_architecture_fixtures.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "format/checkpoint.h"
#include "format/tensor_values.h"
#include "model/architectures.h"
#include "model/model.h"
#include "support/model_runner.h"
#include "support/poison_backend.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;

fs::path fixtures() {
  return fs::path(PERGOLA_SOURCE_DIR) / "tests" / "data" / "architectures";
}

struct Expected {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  ///< of the last positions
};

Expected read_expected(const fs::path& folder) {
  const TensorTable stored({folder / "expected.safetensors"});
  const TensorEntry& ids = *stored.find("input_ids");
  const TensorEntry& logits = *stored.find("logits");
  Expected expected;
  expected.tokens.resize(static_cast<std::size_t>(ids.elements()));
  std::memcpy(expected.tokens.data(), ids.bytes.data(), ids.bytes.size());
  expected.logits = to_floats({logits.dtype, 1, logits.elements(), logits.bytes});
  return expected;
}

/// max |difference| / max |logit| with the default precision.
constexpr double kDefaultTolerance = 2.5e-3;

struct Case {
  std::string backend;
  std::string name;
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name << " on " << value.backend;
}

class Architectures : public ::testing::TestWithParam<Case> {
 protected:
  /// Runs the fixture's tokens in steps of `chunk` and compares the positions that have logits.
  static void compare(const fs::path& folder, const std::string& backend_name, std::int64_t chunk,
                      Precision precision = Precision::exact, double tolerance = 1e-4) {
    const Checkpoint checkpoint(folder);
    const Expected expected = read_expected(folder);
    testing::PoisonBackend backend(open_backend(
        backend_name, {.threads = 2, .precision = precision, .max_rows = std::min<std::int64_t>(chunk, 128)}));
    const std::unique_ptr<Model> model = Model::load(checkpoint, backend);
    const auto length = static_cast<std::int64_t>(expected.tokens.size());
    const auto vocab = static_cast<std::size_t>(model->info().vocab_size);
    testing::ModelRunner runner(*model, backend, 2, length);
    // A shorter sequence in the other slot first: nothing of it may show.
    runner.sequence(1, std::span(expected.tokens).first(std::min<std::size_t>(expected.tokens.size(), 20)), chunk);
    const std::vector<float> all = runner.sequence(0, expected.tokens, chunk);
    ASSERT_LE(expected.logits.size(), all.size());
    const std::size_t first = all.size() - expected.logits.size();
    double difference = 0;
    double largest = 0;
    std::size_t other_top = 0;
    for (std::size_t i = 0; i < expected.logits.size(); i += vocab) {
      const float* want = expected.logits.data() + i;
      const float* have = all.data() + first + i;
      for (std::size_t t = 0; t < vocab; ++t) {
        ASSERT_TRUE(std::isfinite(have[t])) << i / vocab << ", " << t;
        difference = std::max(difference, static_cast<double>(std::abs(want[t] - have[t])));
        largest = std::max(largest, static_cast<double>(std::abs(want[t])));
      }
      // The same token on top, but for an exact tie.
      const auto top = std::max_element(have, have + vocab) - have;
      if (want[top] != *std::max_element(want, want + vocab)) ++other_top;
    }
    std::printf("%s, %s, steps of %lld: max |difference| / max |logit| %.2g\n", folder.filename().string().c_str(),
                backend_name.c_str(), static_cast<long long>(chunk), difference / largest);
    EXPECT_LE(difference / largest, tolerance);
    if (precision == Precision::exact) {
      EXPECT_EQ(other_top, 0u);
    }
  }
};

TEST_P(Architectures, EqualTransformersInOneStep) {
  compare(fixtures() / GetParam().name, GetParam().backend, 48);
}

TEST_P(Architectures, EqualTransformersTokenByToken) {
  compare(fixtures() / GetParam().name, GetParam().backend, 1);
}

TEST_P(Architectures, EqualTransformersInUnevenSteps) {
  compare(fixtures() / GetParam().name, GetParam().backend, 7);
}

/// The binary16 cache is what the default changes for dense weights (docs/numerics.md).
TEST_P(Architectures, DefaultPrecisionStaysWithinItsTolerance) {
  if (GetParam().backend != "cpu") GTEST_SKIP() << "SKIPPED: the reference backend has one precision";
  for (const std::int64_t chunk : {48, 1})
    compare(fixtures() / GetParam().name, "cpu", chunk, Precision::standard, kDefaultTolerance);
}

std::vector<Case> cases(bool long_context) {
  std::vector<Case> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(fixtures())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("long-") != long_context) continue;
    for (const char* backend : {"reference", "cpu"}) all.push_back({backend, name});
  }
  std::sort(all.begin(), all.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return all;
}

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name + "_" + info.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Architectures, ::testing::ValuesIn(cases(false)), test_name);

/// 8,192 tokens: windows passed many times over, positions far beyond the original context.
class LongContext : public Architectures {};

TEST_P(LongContext, EqualsTransformersSlow) {
  compare(fixtures() / GetParam().name, GetParam().backend, 128);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, LongContext, ::testing::ValuesIn(cases(true)), test_name);

/// Every layer of this model has a window, so that a slot holds all that a sequence remembers.
TEST(ArchitectureFixtures, ACopiedSlotContinuesASequenceWithWindows) {
  const fs::path folder = fixtures() / "mistral";
  const Checkpoint checkpoint(folder);
  const Expected expected = read_expected(folder);
  for (const char* name : {"reference", "cpu"}) {
    const std::unique_ptr<Backend> backend = open_backend(name, {.threads = 1, .max_rows = 16});
    const std::unique_ptr<Model> model = Model::load(checkpoint, *backend);
    testing::ModelRunner runner(*model, *backend, 3, 48);
    const std::span<const std::int32_t> tokens(expected.tokens);
    runner.sequence(2, tokens.first(30), 16);
    runner.copy_state(2, 0);
    runner.sequence(2, tokens.first(20), 16);  // over what was copied from
    const testing::ModelRunner::Piece rest{0, {tokens.begin() + 30, tokens.begin() + 40}};
    const std::vector<float> logits = runner.step(std::span(&rest, 1));
    const auto vocab = static_cast<std::size_t>(model->info().vocab_size);
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(logits[i], expected.logits[30 * vocab + i], 2e-2) << name;
  }
}

/// Beyond the original context LongRoPE would rotate by other frequencies.
TEST(ArchitectureFixtures, LongRopeEndsAtTheOriginalContext) {
  const Checkpoint checkpoint(fixtures() / "phi3-longrope");
  const ModelBlueprint blueprint = read_blueprint(checkpoint);
  EXPECT_EQ(blueprint.max_positions, 64);
  EXPECT_TRUE(blueprint.long_rope_left_out);
  EXPECT_FALSE(read_blueprint(Checkpoint(fixtures() / "phi3")).long_rope_left_out);
}

TEST(ArchitectureFixtures, AreThere) {
  EXPECT_GE(cases(false).size(), 2 * 17u);
  EXPECT_GE(cases(true).size(), 2 * 4u);
}

}  // namespace
}  // namespace pergola
