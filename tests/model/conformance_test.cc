#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "format/checkpoint.h"
#include "format/tensor_values.h"
#include "model/model.h"
#include "support/checkpoint_writer.h"
#include "support/model_runner.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;

/// How far logits are from reference logits.
struct Distance {
  double kl_mean = 0;
  double kl_median = 0;
  double top1 = 0;
};

/// KL(reference || ours) per position, over all `vocab` columns.
Distance distance(const std::vector<float>& reference, const std::vector<float>& ours, std::size_t vocab) {
  std::vector<double> divergences;
  std::size_t same = 0;
  const auto log_sum = [&](const float* x) {
    const double largest = *std::max_element(x, x + vocab);
    double sum = 0;
    for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(x[i] - largest);
    return largest + std::log(sum);
  };
  for (std::size_t start = 0; start < reference.size(); start += vocab) {
    const float* p = reference.data() + start;
    const float* q = ours.data() + start;
    const double norm_p = log_sum(p);
    const double norm_q = log_sum(q);
    double kl = 0;
    for (std::size_t i = 0; i < vocab; ++i) kl += std::exp(p[i] - norm_p) * ((p[i] - norm_p) - (q[i] - norm_q));
    divergences.push_back(kl);
    same += std::max_element(p, p + vocab) - p == std::max_element(q, q + vocab) - q ? 1 : 0;
  }
  Distance result;
  for (const double kl : divergences) result.kl_mean += kl / static_cast<double>(divergences.size());
  std::nth_element(divergences.begin(), divergences.begin() + static_cast<std::ptrdiff_t>(divergences.size() / 2),
                   divergences.end());
  result.kl_median = divergences[divergences.size() / 2];
  result.top1 = static_cast<double>(same) / static_cast<double>(divergences.size());
  return result;
}

struct Bounds {
  const char* backend;
  const char* model;
  double kl_mean;
  double kl_median;
  double top1;
};

class Conformance : public ::testing::TestWithParam<Bounds> {
 protected:
  /// Compares the first `positions` positions of every stored sequence.
  void compare(std::int64_t positions) {
    const fs::path shared = testing::shared_folder();
    const fs::path folder = shared / "models" / GetParam().model;
    const fs::path logits_file = shared / "reference_logits" / (std::string(GetParam().model) + ".safetensors");
    if (shared.empty() || !fs::exists(folder) || !fs::exists(logits_file))
      GTEST_SKIP() << "the folder with test models and reference logits is not here";

    const Checkpoint checkpoint(folder);
    const std::unique_ptr<Backend> backend = open_backend(GetParam().backend, {.max_rows = 256});
    const std::unique_ptr<Model> model = Model::load(checkpoint, *backend);
    testing::ModelRunner runner(*model, *backend, 1, positions);

    const TensorTable stored({logits_file});
    const TensorEntry& ids = *stored.find("input_ids");
    const TensorEntry& logits = *stored.find("logits");
    const std::int64_t sequences = ids.shape[0];
    const std::int64_t length = ids.shape[1];
    const std::int64_t vocab = logits.shape[2];
    ASSERT_EQ(vocab, model->info().vocab_size);
    std::vector<float> expected;
    std::vector<float> actual;
    for (std::int64_t s = 0; s < sequences; ++s) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(positions));
      std::memcpy(tokens.data(), ids.bytes.data() + s * length * 4, tokens.size() * 4);
      const std::vector<float> ours = runner.sequence(0, tokens, 100);
      actual.insert(actual.end(), ours.begin(), ours.end());
      const std::size_t first = static_cast<std::size_t>(s * length * vocab) * size_of(logits.dtype);
      const std::size_t count = static_cast<std::size_t>(positions * vocab);
      const std::vector<float> part = to_floats({logits.dtype, 1, static_cast<std::int64_t>(count),
                                                 logits.bytes.subspan(first, count * size_of(logits.dtype))});
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const Distance result = distance(expected, actual, static_cast<std::size_t>(vocab));
    std::printf("%s, %s, %lld positions: KL mean %.3g, median %.3g, top-1 %.2f %%\n", GetParam().backend,
                GetParam().model, static_cast<long long>(sequences * positions), result.kl_mean, result.kl_median,
                100 * result.top1);
    EXPECT_LE(result.kl_mean, GetParam().kl_mean);
    EXPECT_LE(result.kl_median, GetParam().kl_median);
    EXPECT_GE(result.top1, GetParam().top1);
  }
};

TEST_P(Conformance, FirstPositions) {
  compare(64);
}

TEST_P(Conformance, AllPositionsSlow) {
  compare(256);
}

std::vector<Bounds> bounds_of_backends() {
  std::vector<Bounds> all;
  for (const char* backend : {"reference", "cpu"}) {
    all.push_back({backend, "story-moe", 5e-5, 2e-6, 0.99});
    all.push_back({backend, "story-moe-exl3-mul1-4.0", 2.5e-3, 2e-4, 0.98});
    all.push_back({backend, "story-moe-exl3-mcg-3.1", 2.5e-3, 2e-4, 0.98});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Conformance, ::testing::ValuesIn(bounds_of_backends()), [](const auto& bounds) {
  std::string name = std::string(bounds.param.backend) + "_" + bounds.param.model;
  for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace pergola
