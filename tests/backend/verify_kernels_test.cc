#include "backend/cpu/verify_kernels.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

namespace pergola {
namespace {

TEST(VerifyKernels, SlowEveryCombinationIsListedAndPasses) {
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  const auto checks = verify_linear_kernels({}, [&](const std::string&, std::uint64_t done, std::uint64_t of) {
    EXPECT_EQ(done, ++last);
    total = of;
  });
  EXPECT_EQ(last, total);
  std::set<std::tuple<std::string, std::string, int>> weights;
  std::set<std::int64_t> rows;
  std::set<std::int64_t> widths;
  for (const KernelCheck& check : checks) {
    EXPECT_TRUE(check.passed) << check.isa << " " << check.path << " " << check.weight << " K " << check.bits
                              << " rows " << check.rows << " " << check.in_features << "x" << check.out_features << ": "
                              << check.error << " beyond " << check.tolerance;
    weights.insert({check.isa, check.weight, check.bits});
    rows.insert(check.rows);
    widths.insert(check.in_features);
    EXPECT_TRUE(check.in_features < 1024 || check.weights_per_second > 0);
  }
  const auto sets = static_cast<std::size_t>(cpu_features().best) + 1;
  EXPECT_EQ(weights.size(), sets * (kCodebooks * kBitWidths + 3));
  EXPECT_TRUE(rows.contains(1) && rows.contains(2) && rows.contains(24));
  EXPECT_TRUE(widths.contains(300));
}

/// A kernel that forgets one column of one row.
TrellisKernel spoiled;
void multiply_spoiled(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows,
                      float* z, std::byte* scratch) {
  spoiled.multiply(block, in_features, form, rows, z, scratch);
  z[(rows - 1) * 128 + 77] = 0.0f;
}

TEST(VerifyKernels, SeesAFaultInOneKernel) {
  KernelCheckOptions options;
  options.timed = false;
  options.weight = "mcg";
  const Isa isa = cpu_features().best;
  options.alter = [&](KernelTable& table) {
    if (table.isa != isa) return;
    TrellisKernel& entry = table.entry(Codebook::mcg, 5, Regime::few);
    spoiled = entry;
    entry.multiply = multiply_spoiled;
  };
  std::int64_t missed = 0;
  for (const KernelCheck& check : verify_linear_kernels(options, {})) {
    if (check.passed) continue;
    ++missed;
    EXPECT_EQ(check.weight, "mcg");
    EXPECT_EQ(check.bits, 5);
    EXPECT_EQ(check.isa, name_of(isa));
    EXPECT_GT(check.rows, 1);
  }
  EXPECT_GT(missed, 0);
}

}  // namespace
}  // namespace pergola
