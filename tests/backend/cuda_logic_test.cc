// What the CUDA backend decides and arranges without a device.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

#ifdef PERGOLA_HAS_CUDA
#include "backend/cuda/packed_layout.h"
#include "backend/cuda/regime.h"
#include "trellis/codebook.h"
#include "trellis/tile.h"
#endif

namespace pergola {
namespace {

TEST(CudaBackend, ListsItsDevicesOrSaysWhyThereAreNone) {
  bool found = false;
  for (const DeviceListing& listing : list_devices()) {
    if (listing.backend != "cuda") continue;
    found = true;
    EXPECT_EQ(listing.available, !listing.device.empty());
    EXPECT_FALSE(listing.note.empty());
  }
  EXPECT_TRUE(found);
}

TEST(CudaBackend, OpensOrRefusesInOneSentence) {
  bool available = false;
  for (const DeviceListing& listing : list_devices()) available |= listing.backend == "cuda" && listing.available;
  if (available) {
    EXPECT_EQ(open_backend("cuda", {})->info().backend, "cuda");
    return;
  }
  try {
    open_backend("cuda", {});
    FAIL() << "no device, but the backend opened";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.find("CUDA") != std::string::npos || message.find("NVIDIA") != std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

#ifdef PERGOLA_HAS_CUDA

using namespace cuda;

struct Shape {
  std::int64_t in, out, piece_units;
};

class PackedLayout : public ::testing::TestWithParam<std::tuple<int, Shape>> {};

TEST_P(PackedLayout, MovesEveryWordToAPlaceOfItsOwn) {
  const auto [bits, shape] = GetParam();
  const std::int64_t words = shape.in * shape.out * bits / 32, units = shape.in / kUnitInputs;
  std::vector<int> seen_packed(static_cast<std::size_t>(words)), seen_disk(static_cast<std::size_t>(words));
  const std::int64_t disk_words_per_unit_row = 64 * shape.out * bits / 32;
  for (std::int64_t first = 0; first < units; first += shape.piece_units) {
    const std::int64_t piece = std::min(shape.piece_units, units - first);
    for (std::int64_t i = 0; i < piece * disk_words_per_unit_row; ++i) {
      const WordPlaces places = word_places(i, shape.in, shape.out, bits, first, piece);
      ++seen_packed.at(static_cast<std::size_t>(places.packed));
      ++seen_disk.at(static_cast<std::size_t>(first * disk_words_per_unit_row + places.disk));
    }
  }
  EXPECT_EQ(std::set<int>(seen_packed.begin(), seen_packed.end()), std::set<int>{1});
  EXPECT_EQ(std::set<int>(seen_disk.begin(), seen_disk.end()), std::set<int>{1});
}

TEST_P(PackedLayout, GivesALaneTheColumnPairsOfItsBand) {
  const auto [bits, shape] = GetParam();
  const std::int64_t units = shape.in / kUnitInputs, tiles = shape.out / 16;
  for (std::int64_t i = 0; i < shape.in * shape.out * bits / 32; i += 97) {
    const WordPlaces places = word_places(i, shape.in, shape.out, bits, 0, units);
    const std::int64_t inside = places.packed % (256 * bits), unit = places.packed / (256 * bits) % units,
                       group = places.packed / (256 * bits) / units;
    const std::int64_t lane = inside / 4 % 32, number = inside / 128 % bits * 4 + inside % 4,
                       half = inside / 128 / bits;
    const std::int64_t disk_tile = places.disk / (8 * bits), word = places.disk % (8 * bits);
    EXPECT_EQ(disk_tile / tiles, unit * 4 + lane % 4);                   // input band
    EXPECT_EQ(disk_tile % tiles, group * 8 + half * 4 + number / bits);  // tile of 16 columns
    EXPECT_EQ(word, lane / 4 * bits + number % bits);                    // column pair, then its word
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PackedLayout,
                         ::testing::Combine(::testing::Range(1, 9),
                                            ::testing::Values(Shape{128, 128, 2}, Shape{384, 256, 4},
                                                              Shape{256, 640, 3})));

TEST(CudaRegime, FollowsRowsFamilyAndSharedMemory) {
  constexpr int kHopper = 227 * 1024, kConsumer = 99 * 1024;
  const RegimeTable table;
  EXPECT_EQ(linear_regime(Codebook::mul1, 4, 1, kHopper, table), (Regime{false, Operand::bytes, 1, 4}));
  EXPECT_EQ(linear_regime(Codebook::mul1, 4, 5, kHopper, table), (Regime{false, Operand::packed, 1, 8}));
  EXPECT_EQ(linear_regime(Codebook::mcg, 4, 1, kHopper, table), (Regime{false, Operand::pairs, 1, 8}));
  EXPECT_EQ(linear_regime(Codebook::three_inst, 4, 9, kHopper, table), (Regime{false, Operand::packed, 2, 16}));
  EXPECT_EQ(linear_regime(Codebook::mcg, 4, 17, kHopper, table), (Regime{false, Operand::packed, 4, 32}));
  EXPECT_EQ(linear_regime(Codebook::mcg, 8, 17, kConsumer, table).chunk, 16);
  EXPECT_TRUE(linear_regime(Codebook::mcg, 4, table.decode_first_rows, kHopper, table).decode_first);
}

TEST(CudaRegime, EveryKindHasAKernelForEveryRowCount) {
  for (const int shared : {99 * 1024, 163 * 1024, 227 * 1024})
    for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1})
      for (int bits = 1; bits <= 8; ++bits)
        for (std::int64_t rows = 1; rows < 97; ++rows) {
          const Regime regime = few_rows_regime(codebook, bits, rows, shared);
          EXPECT_TRUE(packed_gemm_fits(shared, {codebook, bits}, regime.operand, regime.blocks))
              << bits << ' ' << rows << ' ' << shared;
          EXPECT_LE(regime.chunk, rows_of(regime.operand, regime.blocks));
        }
}

TEST(CudaRegime, CountsTheTasksThatABlockCanTouch) {
  EXPECT_EQ(tasks_per_block(132, 18 * 128, 128, 18), 2);  // shares of 18 units: at most two tasks of 128
  EXPECT_EQ(tasks_per_block(132, 10880, 10880, 1), 1);
  EXPECT_EQ(tasks_per_block(132, 40, 4, 10), 3);  // few units: shares of up to seven
}

TEST(CudaRegime, ExpertChunksGrowWithTheRowsOfAnExpert) {
  EXPECT_EQ(expert_chunk(1, 8, 256), 4);
  EXPECT_EQ(expert_chunk(8, 8, 256), 8);
  EXPECT_EQ(expert_chunk(64, 8, 256), 8);
  EXPECT_EQ(expert_chunk(256, 8, 256), 16);
  EXPECT_EQ(expert_chunk(4096, 8, 256), 32);
}

#endif

}  // namespace
}  // namespace pergola
