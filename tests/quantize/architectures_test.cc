// Every architecture's fixture (tests/data/architectures) through the quantiser: the result must read as the same
// model, run alike on every backend, and say nearly what the dense one says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "eval/distribution.h"
#include "format/checkpoint.h"
#include "model/model.h"
#include "quantize/calibration.h"
#include "quantize/converter.h"
#include "support/checkpoint_writer.h"
#include "support/model_runner.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;

fs::path fixtures() {
  return fs::path(PERGOLA_SOURCE_DIR) / "tests" / "data" / "architectures";
}

struct Logits {
  std::vector<float> logits;
  std::int64_t vocab = 0;
};

Logits run(const Checkpoint& checkpoint, const std::string& backend_name, const std::vector<std::int32_t>& tokens,
           Precision precision = Precision::exact) {
  const auto backend = open_backend(backend_name, {.threads = 2, .precision = precision, .max_rows = 48});
  const std::unique_ptr<Model> model = Model::load(checkpoint, *backend);
  return {testing::ModelRunner(*model, *backend, 1, std::ssize(tokens)).sequence(0, tokens, 48),
          model->info().vocab_size};
}

/// Mean over the positions of KL(expected || actual), in nats.
double mean_kl(const Logits& expected, const Logits& actual) {
  double sum = 0;
  std::int64_t positions = 0;
  const auto vocab = static_cast<std::size_t>(expected.vocab);
  for (std::size_t at = 0; at < expected.logits.size(); at += vocab, ++positions)
    sum += divergence(std::span(expected.logits).subspan(at, vocab), std::span(actual.logits).subspan(at, vocab)).kl;
  return sum / static_cast<double>(positions);
}

/// |actual - expected| / |expected| over all logits.
double distance(const Logits& expected, const Logits& actual) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < expected.logits.size(); ++i) {
    const double wanted = double{expected.logits[i]}, difference = double{actual.logits[i]} - wanted;
    error += difference * difference;
    power += wanted * wanted;
  }
  return std::isfinite(error) ? std::sqrt(error / power) : INFINITY;
}

/// The median over the positions: an expert that is picked otherwise changes single positions by much.
double median_distance(const Logits& expected, const Logits& actual) {
  std::vector<double> all;
  const auto vocab = static_cast<std::size_t>(expected.vocab);
  for (std::size_t at = 0; at < expected.logits.size(); at += vocab) {
    const auto first = static_cast<std::ptrdiff_t>(at), end = static_cast<std::ptrdiff_t>(at + vocab);
    all.push_back(distance({{expected.logits.begin() + first, expected.logits.begin() + end}, expected.vocab},
                           {{actual.logits.begin() + first, actual.logits.begin() + end}, actual.vocab}));
  }
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

std::vector<std::int32_t> fixture_tokens(const fs::path& folder) {
  const TensorTable stored({folder / "expected.safetensors"});
  const TensorEntry& ids = *stored.find("input_ids");
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(ids.elements()));
  std::memcpy(tokens.data(), ids.bytes.data(), ids.bytes.size());
  return tokens;
}

class QuantizedArchitectures : public ::testing::TestWithParam<std::string> {};

TEST_P(QuantizedArchitectures, SlowRunAndStayCloseToTheirSource) {
  const fs::path folder = fixtures() / GetParam();
  const testing::TempFolder temporary;
  fs::create_directory(temporary / "source");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(folder / file, temporary / "source" / file);
  const Checkpoint source(temporary / "source");
  const std::vector<std::int32_t> tokens = fixture_tokens(folder);
  const Logits dense = run(source, "reference", tokens);
  const auto backend = open_backend("cpu", {.threads = 2, .precision = Precision::exact, .max_rows = 64});
  ThreadPool pool(2);
  double previous = INFINITY;
  for (const int bits : {4, 8}) {
    const fs::path made = temporary / ("bits-" + std::to_string(bits)).c_str();
    QuantizeOptions options;
    options.bits = bits;
    options.head_bits = bits;
    quantize_model(source, made, random_calibration(8, 64, dense.vocab, 1), options, *backend, pool, {});
    const Checkpoint stored(made);
    for (const TensorEntry& entry : stored.entries()) {
      const bool projection = entry.name.ends_with("_proj.weight") || entry.name.ends_with("_blocks") ||
                              entry.name.ends_with("experts.gate_up_proj");
      EXPECT_FALSE(projection) << entry.name << " was not quantised";
    }
    const Logits reference = run(stored, "reference", tokens);
    const double kl = mean_kl(dense, reference), error = distance(dense, reference),
                 spread = distance(reference, run(stored, "cpu", tokens));
    const double standard = median_distance(reference, run(stored, "cpu", tokens, Precision::standard));
    std::printf(
        "%s, %d bits: KL from dense %.3g, relative error of logits %.2g; CPU from reference %.2g, by default %.2g\n",
        GetParam().c_str(), bits, kl, error, spread, standard);
    EXPECT_LE(standard, 1.5e-2);  // bfloat16 on machines with AMX, else as `spread`
    EXPECT_LE(spread, 2e-3);
    EXPECT_LE(kl, bits == 4 ? 0.3 : 5e-2);  // an expert picked otherwise counts for much
    EXPECT_LE(error, bits == 4 ? 0.3 : 0.1);
    EXPECT_LT(error, previous / 2);
    previous = error;
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(fixtures())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("long-")) all.push_back(name);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, QuantizedArchitectures, ::testing::ValuesIn(names()), test_name);

}  // namespace
}  // namespace pergola
