// The OpenCL backend on the first device of this machine (PoCL, where no graphics processor is). That every operation
// agrees with the reference is checked in tests/eval/operation_check_test.cc.
#ifdef PERGOLA_HAS_OPENCL
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "backend/backend.h"
#include "backend/opencl/device.h"
#include "backend/opencl/linear.h"
#include "backend/opencl/moe.h"
#include "base/error.h"
#include "support/trellis_samples.h"

namespace pergola::opencl {
namespace {

using pergola::testing::OwnedTrellis;
using pergola::testing::random_normal;
using pergola::testing::random_trellis;

class OpenClDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_none;
    if (find_devices(why_none).empty()) GTEST_SKIP() << "no OpenCL device: " << why_none;
    device_ = std::make_unique<Device>(0);
  }

  /// Random values in device memory.
  FloatMatrix matrix_of(std::int64_t rows, std::int64_t columns) {
    const std::vector<float> values = random_normal<float>(rows * columns, 1);
    memories_.push_back(device_->allocate(values.size() * sizeof(float), "a test"));
    check(clEnqueueWriteBuffer(device_->queue(), memories_.back().get(), CL_TRUE, 0, values.size() * sizeof(float),
                               values.data(), 0, nullptr, nullptr),
          "copying");
    return {memories_.back().get(), 0, static_cast<cl_uint>(columns), rows, columns};
  }

  std::unique_ptr<Device> device_;
  std::vector<Memory> memories_;
};

/// A mixture of experts whose matrices are all alike, and the memory behind it.
struct SmallMoe {
  OwnedTrellis wide = random_trellis(128, 128, 4, Codebook::mul1, 1);
  std::vector<float> router = random_normal<float>(8 * 128, 2);
  MoeView view;

  SmallMoe() {
    const LinearView linear{"expert", 128, 128, wide.view(), std::nullopt};
    view.name = "layer";
    view.hidden = 128;
    view.top_k = 2;
    view.router = {"router", 128, 8, DenseView{DType::f32, 8, 128, std::as_bytes(std::span(router))}, std::nullopt};
    view.experts.assign(8, {linear, linear, linear});
    view.shared = MoeView::Expert{linear, linear, linear};
  }
};

TEST_F(OpenClDevice, AnExpertLayerDecodesInFewLaunchesWithoutHostWaits) {
  const SmallMoe small;
  const OpenClMoe moe(*device_, small.view, 64, RowTiles(Precision::standard, false, false));
  const FloatMatrix x = matrix_of(1, 128), out = matrix_of(1, 128);
  const Counters before = device_->counters();
  moe.run(*device_, x, out);
  const Counters after = device_->counters();
  EXPECT_EQ(after.launches - before.launches, 4u) << "router, choice, gate and up, down";
  EXPECT_EQ(after.host_waits, before.host_waits);
}

TEST_F(OpenClDevice, LongStepsDoNotWaitForTheHostEither) {
  const SmallMoe small;
  const OpenClMoe moe(*device_, small.view, 64, RowTiles(Precision::standard, false, false));
  const FloatMatrix x = matrix_of(33, 128), out = matrix_of(33, 128);
  const Counters before = device_->counters();
  moe.run(*device_, x, out);
  EXPECT_LE(device_->counters().launches - before.launches, 8u);
  EXPECT_EQ(device_->counters().host_waits, before.host_waits);
}

TEST_F(OpenClDevice, APackedWordIsReadOnceForAStepOfARow) {
  constexpr std::uint32_t kIn = 512, kOut = 256, kBits = 3, kWords = kIn * kOut * kBits / 32,
                          kScales = (kIn + kOut) / 2;
  const OwnedTrellis weights = random_trellis(kIn, kOut, kBits, Codebook::mcg, 4);
  std::vector<std::uint32_t> arena(kWords + kScales + kWords, 0);
  std::memcpy(arena.data(), weights.trellis.data(), kWords * 4);
  std::memcpy(arena.data() + kWords, weights.suh.data(), kIn * 2);
  std::memcpy(arena.data() + kWords + kIn / 2, weights.svh.data(), kOut * 2);
  const std::size_t bytes = arena.size() * 4;
  const Memory memory = device_->allocate(bytes, "a test"), table = device_->allocate(sizeof(Matrix), "a test");
  Matrix matrix{
      .suh = 2 * kWords, .svh = 2 * kWords + kIn, .in = kIn, .out = kOut, .stored_in = kIn, .stored_out = kOut};
  matrix.kind = static_cast<std::uint32_t>(Codebook::mcg) * 8 + kBits - 1;
  check(clEnqueueWriteBuffer(device_->queue(), table.get(), CL_TRUE, 0, sizeof matrix, &matrix, 0, nullptr, nullptr),
        "");
  const FloatMatrix x = matrix_of(33, kIn), out = matrix_of(33, kOut);
  LinearOutputs outputs;
  outputs.stride[0] = kOut;
  outputs.count = 1;
  const auto expect_reads = [&](const Variant& variant, std::size_t rows, std::size_t parts, std::uint32_t reads) {
    check(clEnqueueWriteBuffer(device_->queue(), memory.get(), CL_TRUE, 0, bytes, arena.data(), 0, nullptr, nullptr),
          "");
    const std::string options = matrix_options(*device_, 1u << matrix.kind, variant, false) +
                                " -DCOUNT_WORDS=" + std::to_string(kWords + kScales);
    const std::size_t tiles =
        (rows + static_cast<std::size_t>(variant.rows) - 1) / static_cast<std::size_t>(variant.rows);
    device_->launch(device_->kernel("linear.cl", "trellis_linear", options), {{kOut / 128, tiles, 1}, {64, parts, 1}},
                    memory.get(), memory.get(), memory.get(), memory.get(), table.get(), x.memory, x.offset, x.stride,
                    static_cast<cl_uint>(rows), out.memory, outputs,
                    LocalBytes{scratch_bytes(variant, static_cast<std::int64_t>(parts))});
    std::vector<std::uint32_t> counts(kWords);
    check(clEnqueueReadBuffer(device_->queue(), memory.get(), CL_TRUE, (kWords + kScales) * 4, kWords * 4,
                              counts.data(), 0, nullptr, nullptr),
          "");
    EXPECT_EQ(counts, std::vector<std::uint32_t>(kWords, reads)) << variant.rows << " rows a tile, " << rows;
  };
  expect_reads(find_variant(1, Arithmetic::unrounded), 1, 1, 1);
  expect_reads(find_variant(16, Arithmetic::unrounded), 33, 1, 3);
}

TEST_F(OpenClDevice, WeightsOfSharedMemoryAreReadInPlace) {
  if (!device_->facts().shares_host_memory) GTEST_SKIP() << "this device has memory of its own";
  WeightArenas arenas(*device_, std::array<std::size_t, 1>{4096}, "a test");
  const std::vector<float> values = random_normal<float>(1024, 3);
  arenas.write(arenas.place(0), values.data(), 4096);
  arenas.seal();
  EXPECT_TRUE(arenas.in_place());
  cl_int error = CL_SUCCESS;
  void* host = nullptr;
  check(clGetMemObjectInfo(arenas.memories()[0], CL_MEM_HOST_PTR, sizeof host, &host, nullptr), "asking for memory");
  void* mapped = clEnqueueMapBuffer(device_->queue(), arenas.memories()[0], CL_TRUE, CL_MAP_READ, 0, 4096, 0, nullptr,
                                    nullptr, &error);
  ASSERT_EQ(error, CL_SUCCESS);
  EXPECT_EQ(mapped, host);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % 4096, 0u);
  EXPECT_EQ(std::memcmp(mapped, values.data(), 4096), 0);
  clEnqueueUnmapMemObject(device_->queue(), arenas.memories()[0], mapped, 0, nullptr, nullptr);
}

TEST_F(OpenClDevice, MoreMemoryThanOneAllocationIsRefusedByName) {
  try {
    device_->allocate(device_->facts().most_allocation_bytes + 1, "the KV cache");
    FAIL() << "allocated";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the KV cache"), std::string::npos) << error.what();
  }
}

TEST_F(OpenClDevice, ASecondStartTakesProgramsFromDisk) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "pergola-opencl-programs";
  std::filesystem::remove_all(folder);
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  for (int start = 0; start < 2; ++start) {
    Device device(0, ProgramCache(folder));
    device.kernel("combine.cl", "moe_combine", device.base_options());
    EXPECT_EQ(entries(), 1);
  }
  // Of another driver or damaged: the driver refuses it, and it is compiled again.
  std::filesystem::resize_file(std::filesystem::directory_iterator(folder)->path(), 100);
  Device device(0, ProgramCache(folder));
  device.kernel("combine.cl", "moe_combine", device.base_options());
  EXPECT_EQ(entries(), 1);
  EXPECT_GT(std::filesystem::file_size(std::filesystem::directory_iterator(folder)->path()), 100u);
  std::filesystem::remove_all(folder);
}

TEST_F(OpenClDevice, ABuildThatFailsShowsTheCompilersLog) {
  try {
    device_->kernel("combine.cl", "moe_combine", "-Drow=+");
    FAIL() << "built";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("combine.cl"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("error"), std::string::npos) << error.what();
  }
}

TEST(OpenClBackend, ADeviceThatIsNotThereIsNamed) {
  try {
    open_backend("opencl", {.device = 250});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("OpenCL device"), std::string::npos) << error.what();
  }
}

TEST(OpenClBackend, OtherBackendsRefuseItsOptions) {
  EXPECT_THROW(open_backend("cpu", {.cache_8bit = true}), Error);
  EXPECT_THROW(open_backend("cpu", {.device = 1}), Error);
}

}  // namespace
}  // namespace pergola::opencl
#endif
