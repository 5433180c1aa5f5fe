#include "backend/cpu/packed_linear.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/trellis_samples.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

constexpr Codebook kCodebooksUsed[] = {Codebook::three_inst, Codebook::mcg, Codebook::mul1};

/// Every instruction set of this machine.
std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (isa <= cpu_features().best) sets.push_back(isa);
  }
  return sets;
}

/// y of one linear through form, multiply and finish, on one thread.
std::vector<float> run(const KernelTable& table, const PackedLinear& linear, const std::vector<float>& x,
                       std::int64_t rows) {
  std::vector<float> y(static_cast<std::size_t>(rows * linear.out_features), -77.0f);
  std::vector<std::byte> form_storage(static_cast<std::size_t>(form_bytes(table, linear, rows)) + 64);
  std::vector<std::byte> scratch_storage(static_cast<std::size_t>(block_scratch_bytes(table, linear, rows)) + 64);
  const auto align = [](std::vector<std::byte>& v) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(v.data()) + 63) & ~std::uintptr_t{63});
  };
  std::byte* form = align(form_storage);
  for (std::int64_t r = 0; r < rows; ++r) prepare_row(table, linear, x.data() + r * linear.in_features, r, rows, form);
  const LinearInput input{x.data(), linear.in_features, form, rows};
  for (std::int64_t block = 0; block < linear.blocks(); ++block) {
    multiply_block(table, linear, block, input, y.data() + block * linear.block_columns(), linear.out_features,
                   align(scratch_storage));
  }
  return y;
}

std::vector<double> expected(const LinearView& view, const std::vector<float>& x, std::int64_t rows) {
  std::vector<double> y(static_cast<std::size_t>(rows * view.out_features));
  linear_product(view, rows, std::vector<double>(x.begin(), x.end()), y);
  return y;
}

TEST(PackedLinear, EveryKernelAgainstDouble) {
  ThreadPool pool(2);
  for (const Codebook codebook : kCodebooksUsed) {
    for (int bits = 1; bits <= 8; ++bits) {
      const auto sample = testing::random_trellis(384, 256, bits, codebook, 3);
      const LinearView view{"sample", 384, 256, sample.view(), std::nullopt};
      WeightArena arena;
      const PackedLinear linear = pack_linear(view, arena, pool);
      const auto x = testing::random_normal<float>(40 * 384, 8);
      const auto y = expected(view, x, 40);
      for (const Isa isa : instruction_sets()) {
        for (const Precision precision : {Precision::standard, Precision::exact, Precision::int8}) {
          const KernelTable table = make_kernel_table(cpu_features(), isa, precision);
          for (const std::int64_t rows : {1, 2, 3, 5, 8, 17, 40}) {
            const std::vector<float> some(x.begin(), x.begin() + rows * 384);
            const std::vector<double> wanted(y.begin(), y.begin() + rows * 256);
            const TrellisKernel& kernel = table.kernel_for_rows(codebook, bits, rows);
            EXPECT_LT(testing::relative_error(run(table, linear, some, rows), wanted), kernel.tolerance)
                << name_of(isa) << " " << kernel.path << " " << name_of(codebook) << " K " << bits << " rows " << rows;
          }
        }
      }
    }
  }
}

TEST(PackedLinear, LogicalWidthsAndBias) {
  ThreadPool pool(1);
  const auto sample = testing::random_trellis(256, 384, 4, Codebook::mul1, 5);
  const auto bias = testing::random_normal<float>(300, 6);
  const LinearView view{"sample", 131, 300, sample.view(),
                        DenseView{DType::f32, 1, 300, std::as_bytes(std::span(bias))}};
  WeightArena arena;
  const PackedLinear linear = pack_linear(view, arena, pool);
  EXPECT_EQ(arena.bytes(), packed_linear_bytes(view));
  const auto x = testing::random_normal<float>(30 * 131, 7);
  for (const Isa isa : instruction_sets()) {
    const KernelTable table = make_kernel_table(cpu_features(), isa, Precision::standard);
    for (const std::int64_t rows : {1, 4, 30}) {
      const std::vector<float> some(x.begin(), x.begin() + rows * 131);
      const double tolerance = table.kernel_for_rows(Codebook::mul1, 4, rows).tolerance;
      EXPECT_LT(testing::relative_error(run(table, linear, some, rows), expected(view, some, rows)), tolerance)
          << name_of(isa) << rows;
    }
  }
}

TEST(PackedLinear, DenseOfEveryType) {
  ThreadPool pool(1);
  for (const std::int64_t in : {1, 7, 64, 203}) {
    const std::int64_t out = 137;
    const auto w = testing::random_normal<float>(in * out, 5);
    const auto x = testing::random_normal<float>(9 * in, 6);
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      std::vector<std::byte> bytes(1);
      for (const float value : w) {
        const std::uint16_t half = type == DType::f16 ? to_half(value).bits : to_bfloat16(value).bits;
        const auto* from =
            type == DType::f32 ? reinterpret_cast<const std::byte*>(&value) : reinterpret_cast<const std::byte*>(&half);
        bytes.insert(bytes.end(), from, from + size_of(type));
      }
      const LinearView view{"dense", in, out, DenseView{type, out, in, std::span(bytes).subspan(1)}, std::nullopt};
      WeightArena arena;
      const PackedLinear linear = pack_linear(view, arena, pool);
      for (const Isa isa : instruction_sets()) {
        const KernelTable table = make_kernel_table(cpu_features(), isa, Precision::standard);
        for (const std::int64_t rows : {1, 2, 9}) {
          const std::vector<float> some(x.begin(), x.begin() + rows * in);
          EXPECT_LT(testing::relative_error(run(table, linear, some, rows), expected(view, some, rows)), 1e-6)
              << name_of(isa) << " " << name_of(type) << " in " << in << " rows " << rows;
        }
      }
    }
  }
}

/// A row's result depends on the row, the matrix and the kernel alone.
TEST(PackedLinear, RowsDoNotDependOnEachOther) {
  ThreadPool pool(1);
  for (const Codebook codebook : kCodebooksUsed) {
    const auto sample = testing::random_trellis(256, 128, 3, codebook, 5);
    const LinearView view{"sample", 256, 128, sample.view(), std::nullopt};
    WeightArena arena;
    const PackedLinear linear = pack_linear(view, arena, pool);
    const auto x = testing::random_normal<float>(60 * 256, 7);
    for (const Isa isa : instruction_sets()) {
      const KernelTable table = make_kernel_table(cpu_features(), isa, Precision::standard);
      for (const auto& [few, many] : {std::pair<std::int64_t, std::int64_t>{2, 11}, {33, 60}}) {
        const auto first = run(table, linear, {x.begin(), x.begin() + few * 256}, few);
        const auto all = run(table, linear, {x.begin(), x.begin() + many * 256}, many);
        for (std::int64_t i = 0; i < few * 128; ++i) ASSERT_EQ(first[i], all[i]) << name_of(isa) << name_of(codebook);
      }
    }
  }
}

TEST(RowRegime, FollowsTheLimits) {
  constexpr RowLimits limits{2, 24};
  static_assert(choose_regime(limits, 1) == Regime::one);
  static_assert(choose_regime(limits, 2) == Regime::few);
  static_assert(choose_regime(limits, 23) == Regime::few);
  static_assert(choose_regime(limits, 24) == Regime::many);
  static_assert(choose_regime({1, 1}, 1) == Regime::many);
}

}  // namespace
}  // namespace pergola
