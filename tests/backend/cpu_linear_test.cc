#include "backend/cpu/cpu_linear.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "support/trellis_samples.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

/// Host memory of a vector as a Buffer.
class VectorBuffer final : public Buffer {
 public:
  explicit VectorBuffer(std::vector<float>& values) : values_(values) {}
  void* address() const override { return values_.data(); }
  std::size_t bytes() const override { return values_.size() * sizeof(float); }

 private:
  std::vector<float>& values_;
};

/// A group of unlike members: three codebooks, three K, padded widths, a bias, a dense weight.
struct Sample {
  static constexpr std::int64_t kIn = 300;
  testing::OwnedTrellis q = testing::random_trellis(384, 1408, 3, Codebook::mul1, 1);
  testing::OwnedTrellis k = testing::random_trellis(384, 128, 5, Codebook::mcg, 2);
  testing::OwnedTrellis v = testing::random_trellis(384, 256, 8, Codebook::three_inst, 3);
  std::vector<float> dense = testing::random_normal<float>(kIn * 70, 4);
  std::vector<float> bias = testing::random_normal<float>(200, 5);

  std::vector<LinearView> views() const {
    return {{"q", kIn, 1408, q.view(), std::nullopt},
            {"k", kIn, 100, k.view(), std::nullopt},
            {"v", kIn, 200, v.view(), DenseView{DType::f32, 1, 200, std::as_bytes(std::span(bias))}},
            {"d", kIn, 70, DenseView{DType::f32, 70, kIn, std::as_bytes(std::span(dense))}, std::nullopt}};
  }
};

struct Result {
  std::vector<std::vector<float>> outs;
};

Result run(const Sample& sample, Isa isa, int threads, const std::vector<float>& x, std::int64_t rows,
           std::int64_t pad) {
  ThreadPool pool(threads);
  WeightArena arena;
  const KernelTable table = make_kernel_table(cpu_features(), isa, Precision::standard);
  const auto views = sample.views();
  const CpuLinearGroup group(views, table, rows, arena, pool);
  EXPECT_EQ(group.members(), 4);
  EXPECT_EQ(static_cast<std::int64_t>(group.bytes()), arena.bytes());
  const WorkNeeds needs = linear_work_needs(table, views, rows);
  EXPECT_EQ(needs.shared, group.needs().shared);
  EXPECT_EQ(needs.per_thread, group.needs().per_thread);
  WorkSpace work(threads);
  work.reserve(needs);

  std::vector<float> input = x;
  VectorBuffer x_buffer(input);
  const Tensor x_tensor{&x_buffer, 0, DType::f32, rows, Sample::kIn, Sample::kIn};
  Result result;
  std::vector<std::unique_ptr<VectorBuffer>> buffers;
  std::vector<Tensor> outs;
  for (const LinearView& view : views) {
    result.outs.emplace_back(static_cast<std::size_t>(rows * (view.out_features + pad)), 99.0f);
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    buffers.push_back(std::make_unique<VectorBuffer>(result.outs[i]));
    outs.push_back({buffers[i].get(), 0, DType::f32, rows, views[i].out_features, views[i].out_features + pad});
  }
  group.multiply(table, pool, work, x_tensor, outs);
  return result;
}

TEST(CpuLinearGroup, UnlikeMembersAgainstDouble) {
  const Sample sample;
  for (const std::int64_t rows : {1, 6, 30}) {
    const auto x = testing::random_normal<float>(rows * Sample::kIn, 6);
    constexpr std::int64_t pad = 3;
    const Result result = run(sample, cpu_features().best, 2, x, rows, pad);
    const auto views = sample.views();
    for (std::size_t i = 0; i < views.size(); ++i) {
      std::vector<double> wanted(static_cast<std::size_t>(rows * views[i].out_features));
      linear_product(views[i], rows, std::vector<double>(x.begin(), x.end()), wanted);
      std::vector<float> got;
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* row = result.outs[i].data() + r * (views[i].out_features + pad);
        got.insert(got.end(), row, row + views[i].out_features);
        for (std::int64_t p = 0; p < pad; ++p)
          ASSERT_EQ(row[views[i].out_features + p], 99.0f);  // only logical columns
      }
      const bool bfloat16 = rows > 16 && cpu_features().best == Isa::amx;  // many rows on matrix units
      EXPECT_LT(testing::relative_error(got, wanted), bfloat16 ? 3e-3 : 1e-3) << views[i].name << " rows " << rows;
    }
  }
}

TEST(CpuLinearGroup, SameResultForAnyThreadCount) {
  const Sample sample;
  const auto x = testing::random_normal<float>(25 * Sample::kIn, 6);
  for (const Isa isa : {Isa::scalar, cpu_features().best}) {
    for (const std::int64_t rows : {1, 3, 25}) {
      const Result one = run(sample, isa, 1, {x.begin(), x.begin() + rows * Sample::kIn}, rows, 0);
      const Result three = run(sample, isa, 3, {x.begin(), x.begin() + rows * Sample::kIn}, rows, 0);
      EXPECT_EQ(one.outs, three.outs);
    }
  }
}

}  // namespace
}  // namespace pergola
