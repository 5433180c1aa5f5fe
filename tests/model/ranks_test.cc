// A model cut over ranks says what it says on one: every kind of cut, over the reference and the CPU backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "backend/forwarding_backend.h"
#include "base/error.h"
#include "eval/distribution.h"
#include "model/architectures.h"
#include "model/ranked_model.h"
#include "model/shard_cutter.h"
#include "support/loaded_tiny.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ModelRunner;
using testing::random_tokens;
using testing::TempFolder;
using testing::TinyQwen;

constexpr std::int64_t kTokens = 40;

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Backends of ranks, whose fresh memory is NaN.
class Backends {
 public:
  Backends(const std::string& name, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      owned_.push_back(std::make_unique<testing::PoisonBackend>(
          open_backend(name, {.threads = 1, .precision = Precision::exact, .max_rows = 16})));
    }
  }
  std::vector<Backend*> all() const {
    std::vector<Backend*> pointers;
    for (const auto& backend : owned_) pointers.push_back(backend.get());
    return pointers;
  }
  Backend& first() const { return *owned_.front(); }

 private:
  std::vector<std::unique_ptr<testing::PoisonBackend>> owned_;
};

struct Output {
  std::vector<float> logits;
  std::vector<std::int32_t> greedy;
};

/// Logits of a prompt, in steps of 16 beside another sequence, and the tokens that follow greedily.
Output run(LanguageModel& model, Backend& backend, const std::vector<std::int32_t>& tokens) {
  ModelRunner runner(model, backend, 2, 128);
  runner.sequence(1, std::span(tokens).first(7), 4);
  Output result{runner.sequence(0, tokens, 16), {}};
  const auto vocab = static_cast<std::ptrdiff_t>(model.info().vocab_size);
  std::vector<float> last(result.logits.end() - vocab, result.logits.end());
  for (int i = 0; i < 20; ++i) {
    result.greedy.push_back(static_cast<std::int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
    const ModelRunner::Piece piece{0, {result.greedy.back()}};
    last = runner.step({&piece, 1});
  }
  runner.copy_state(0, 1);
  return result;
}

/// Compares a folder's model cut over `ranks` with itself in one piece. Returns the mean KL.
double compare(const fs::path& folder, const std::string& backend_name, const ShardOptions& options,
               std::int64_t token_count = kTokens) {
  const Checkpoint checkpoint(folder);
  const ModelBlueprint blueprint = read_blueprint(checkpoint);
  const auto tokens = random_tokens(token_count, blueprint.vocab_size);
  const Backends alone(backend_name, 1), many(backend_name, options.ranks);
  const std::unique_ptr<Model> whole = Model::load(checkpoint, alone.first());
  const Output expected = run(*whole, alone.first(), tokens);
  const auto ranked = RankedModel::load(checkpoint, many.all(), plan_shards(blueprint, options));
  const Output actual = run(*ranked, many.first(), tokens);
  const auto vocab = static_cast<std::size_t>(blueprint.vocab_size);
  double kl = 0;
  for (std::size_t at = 0; at < expected.logits.size(); at += vocab)
    kl += divergence(std::span(expected.logits).subspan(at, vocab), std::span(actual.logits).subspan(at, vocab)).kl;
  kl /= static_cast<double>(expected.logits.size() / vocab);
  EXPECT_EQ(actual.greedy, expected.greedy);
  EXPECT_LE(std::abs(kl), 1e-6);  // NaN fails
  return kl;
}

/// Blocks of 128 everywhere, twelve of each kind, so that 2, 3 and 4 divide.
TinyQwen divisible() {
  TinyQwen tiny;
  tiny.hidden = 128;
  tiny.vocab = 1000;
  tiny.full_attention = {false, true};
  tiny.heads = 12;
  tiny.kv_heads = 12;
  tiny.head_dim = 128;
  tiny.key_heads = 12;
  tiny.value_heads = 12;
  tiny.key_dim = 128;
  tiny.value_dim = 128;
  tiny.intermediate = 12 * 128;
  tiny.weights = TinyQwen::Weights::exl3;
  return tiny;
}

struct Case {
  std::string name;
  TinyQwen tiny;
  ExpertPlacement experts = ExpertPlacement::automatic;
  std::vector<int> ranks = {2, 3, 4};
};

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({"dense_feed_forward", divisible()});
  TinyQwen tiny = divisible();
  tiny.kv_heads = 2;  // three ranks do not divide them
  tiny.key_heads = 2;
  all.push_back({"repeated_key_heads", tiny, ExpertPlacement::automatic, {2, 4, 6}});
  tiny = divisible();
  tiny.experts = 5;
  all.push_back({"split_experts", tiny, ExpertPlacement::split});
  all.push_back({"spread_experts", tiny, ExpertPlacement::spread});
  tiny.intermediate = 128;  // experts and the shared one cannot be split
  all.push_back({"narrow_experts", tiny});
  tiny = TinyQwen{};  // dense weights, no width a multiple of 128
  tiny.kv_heads = 4;
  tiny.key_heads = tiny.value_heads = 4;
  all.push_back({"dense_weights", tiny, ExpertPlacement::automatic, {2, 4}});
  tiny.experts = 4;
  all.push_back({"dense_weights_split_experts", tiny, ExpertPlacement::split, {2, 4}});
  all.push_back({"dense_weights_spread_experts", tiny, ExpertPlacement::spread, {2, 4}});
  return all;
}

class Ranks : public ::testing::TestWithParam<Case> {};

TEST_P(Ranks, SayWhatOneSays) {
  const TempFolder folder;
  GetParam().tiny.write(folder.path());
  for (const char* backend : {"reference", "cpu"}) {
    for (const int ranks : GetParam().ranks) {
      if (backend == std::string_view("reference") && ranks != GetParam().ranks.back()) continue;  // slow
      const double kl = compare(folder.path(), backend, {ranks, GetParam().experts}, 20);
      std::printf("%s, %d ranks on %s: KL %.2g\n", GetParam().name.c_str(), ranks, backend, kl);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, Ranks, ::testing::ValuesIn(cases()), [](const auto& param) { return param.param.name; });

/// Every family's fixture (dense weights) for every number of ranks up to four that divides it.
TEST(RanksOfFamilies, SayWhatOneSays) {
  const fs::path fixtures = fs::path(PERGOLA_SOURCE_DIR) / "tests" / "data" / "architectures";
  int cuts = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(fixtures)) {
    if (entry.path().filename().string().starts_with("long-")) continue;
    const ModelBlueprint blueprint = read_blueprint(Checkpoint(entry.path()));
    for (const int ranks : legal_ranks(blueprint, ExpertPlacement::automatic, 4)) {
      if (ranks == 1) continue;
      SCOPED_TRACE(entry.path().filename().string());
      compare(entry.path(), "cpu", {ranks});
      ++cuts;
    }
  }
  EXPECT_GE(cuts, 20);
}

TEST(RanksOfPublishedModels, SayWhatOneSays) {
  const fs::path shared = testing::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "SKIPPED: no shared folder with story-moe-exl3-*";
  for (const char* name : {"story-moe-exl3-mul1-4.0", "story-moe-exl3-mcg-3.1"}) {
    const fs::path folder = shared / "models" / name;
    EXPECT_THAT(legal_ranks(read_blueprint(Checkpoint(folder)), ExpertPlacement::automatic), ElementsAre(1, 2, 4));
    for (const int ranks : {2, 4}) std::printf("%s, %d ranks: KL %.2g\n", name, ranks, compare(folder, "cpu", {ranks}));
  }
}

TEST(ShardPlan, UnitsThatDoNotDivideAreRefusedWithTheNumbersThatDo) {
  const TempFolder folder;
  TinyQwen tiny = divisible();
  tiny.intermediate = 3 * 128;  // an odd number of blocks: a cut in the middle of one would go unnoticed
  tiny.write(folder.path());
  const Checkpoint checkpoint(folder.path());
  const ModelBlueprint model = read_blueprint(checkpoint);
  EXPECT_THAT(legal_ranks(model, ExpertPlacement::automatic), ElementsAre(1, 3));
  EXPECT_THAT(message_of([&] { plan_shards(model, {2}); }),
              AllOf(HasSubstr("mlp cannot be cut for 2 ranks: its width is 384"), HasSubstr("can be cut for: 1, 3")));
}

TEST(ShardPlan, HeadsOf64AreNotCutInTheirBlocks) {
  const TempFolder folder;
  TinyQwen tiny = divisible();
  tiny.full_attention = {true};
  tiny.head_dim = 64;
  tiny.heads = 4;
  tiny.kv_heads = 2;
  tiny.write(folder.path());
  const Checkpoint checkpoint(folder.path());
  EXPECT_THAT(message_of([&] { plan_shards(read_blueprint(checkpoint), {2}); }),
              HasSubstr("keys would be 64 wide, no whole blocks of 128"));
}

/// Ranges of one axis of one tensor, together over all ranks.
TEST(ShardPlan, EveryTensorIsCoveredOnce) {
  const TempFolder folder;
  TinyQwen tiny = divisible();
  tiny.experts = 5;
  tiny.write(folder.path());
  const Checkpoint checkpoint(folder.path());
  const ModelBlueprint model = read_blueprint(checkpoint);
  for (const ExpertPlacement experts : {ExpertPlacement::split, ExpertPlacement::spread}) {
    const ShardPlan plan = plan_shards(model, {4, experts});
    std::map<std::string, std::set<std::int64_t>> seen;
    std::map<std::string, std::int64_t> counted;
    std::map<std::string, int> whole;
    for (int rank = 0; rank < 4; ++rank) {
      for (const TensorSlice& slice : slices_of(model, plan, rank)) {
        if (slice.axis == TensorSlice::Axis::whole) ++whole[slice.tensor];
        for (const IndexRange& range : slice.ranges) {
          for (std::int64_t i = 0; i < range.count; ++i) seen[slice.tensor].insert(range.first + i);
          counted[slice.tensor] += range.count;
        }
      }
    }
    for (const auto& [tensor, features] : seen) {
      EXPECT_EQ(std::ssize(features), counted[tensor]) << tensor << ": a feature is held twice";
      EXPECT_EQ(*features.rbegin() + 1, counted[tensor]) << tensor << ": a feature is held by nobody";
    }
    for (const auto& [tensor, count] : whole) EXPECT_EQ(count, 1) << tensor;
    EXPECT_EQ(counted["lm_head"], 1000);
  }
}

TEST(RankedModel, SaysTheSameToTheBitEveryTime) {
  const TempFolder folder;
  TinyQwen tiny = divisible();
  tiny.experts = 5;
  tiny.write(folder.path());
  const Checkpoint checkpoint(folder.path());
  const ShardPlan plan = plan_shards(read_blueprint(checkpoint), {3});
  std::vector<float> first;
  for (int i = 0; i < 3; ++i) {
    const Backends backends("cpu", 3);
    const auto model = RankedModel::load(checkpoint, backends.all(), plan);
    ModelRunner runner(*model, backends.first(), 1, 64);
    const std::vector<float> logits = runner.sequence(0, random_tokens(20, 1000), 16);
    if (i == 0) first = logits;
    EXPECT_EQ(logits, first);
  }
}

/// Fails in the middle of a step.
class FailingBackend final : public ForwardingBackend {
 public:
  FailingBackend(Backend& inner, std::atomic<bool>& fails) : ForwardingBackend(inner), fails_(fails) {}
  void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
                 const Batch& batch, const Tensor& out) override {
    if (fails_) throw Error("the device fell off the bus");
    ForwardingBackend::attention(layer, q, k, v, cache, batch, out);
  }

 private:
  std::atomic<bool>& fails_;
};

TEST(RankedModel, ARankThatFailsEndsTheStepWithOneSentence) {
  const TempFolder folder;
  divisible().write(folder.path());
  const Checkpoint checkpoint(folder.path());
  const Backends backends("cpu", 3);
  std::atomic<bool> fails = false;
  FailingBackend failing(*backends.all()[2], fails);
  std::vector<Backend*> all = backends.all();
  all[2] = &failing;
  const auto model = RankedModel::load(checkpoint, all, plan_shards(read_blueprint(checkpoint), {3}));
  ModelRunner runner(*model, backends.first(), 1, 64);
  runner.sequence(0, random_tokens(5, 1000), 16);
  fails = true;
  const ModelRunner::Piece next{0, {7}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(message_of([&] { runner.step({&next, 1}); }), "rank 2 of 3 failed: the device fell off the bus");
    fails = false;  // the model stays unusable: its ranks have not seen the same steps
  }
}

}  // namespace
}  // namespace pergola
