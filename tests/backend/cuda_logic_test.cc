// What the CUDA backend decides and arranges without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

#ifdef PERGOLA_HAS_CUDA
#include "backend/cuda/delta_net.h"
#include "backend/cuda/gemv.h"
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
  EXPECT_TRUE(linear_regime(Codebook::mcg, 8, 17, kConsumer, table).decode_first);  // no kernel fits
  EXPECT_TRUE(linear_regime(Codebook::mcg, 4, table.decode_first_rows, kHopper, table).decode_first);
}

TEST(CudaRegime, EveryKindHasAWayForEveryRowCount) {
  const RegimeTable table;
  for (const int shared : {99 * 1024, 163 * 1024, 227 * 1024})
    for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1})
      for (int bits = 1; bits <= 8; ++bits)
        for (std::int64_t rows = 1; rows < table.decode_first_rows; ++rows) {
          const Regime regime = linear_regime(codebook, bits, rows, shared, table);
          if (shared == 227 * 1024) EXPECT_FALSE(regime.decode_first) << bits << ' ' << rows;
          if (regime.decode_first) continue;
          EXPECT_TRUE(packed_gemm_fits(shared, {codebook, bits}, regime.operand, regime.blocks))
              << bits << ' ' << rows << ' ' << shared;
          EXPECT_LE(regime.chunk, rows_of(regime.operand, regime.blocks));
        }
}

TEST(CudaRegime, ExpertsThatDoNotFitAreKnownBeforehand) {
  EXPECT_TRUE(experts_fit(Codebook::mul1, 3, 32, 227 * 1024));
  EXPECT_TRUE(experts_fit(Codebook::mcg, 8, 16, 227 * 1024));
  EXPECT_FALSE(experts_fit(Codebook::mcg, 8, 16, 99 * 1024));
}

TEST(CudaGemv, PlansFitAndCoverEveryWidthAndRowCount) {
  constexpr int kShared = 227 * 1024;
  for (const Family family : {Family::half_pair, Family::byte_sum})
    for (int bits = 1; bits <= 8; ++bits)
      for (const int rows : {1, 4, 8})
        for (const int blocks : {1, 3, 16, 40}) {
          const GemvPlan plan = plan_gemv({16, blocks, blocks, bits, rows, family}, 132, kShared);
          ASSERT_GT(plan.slots, 0) << bits << ' ' << rows << ' ' << blocks;
          EXPECT_LE(plan.cluster, std::min(8, blocks));
          EXPECT_LE(plan.shared_bytes, kShared);
          // A ring of one slot would wait for itself.
          EXPECT_TRUE(plan.slots >= 2 || (blocks + plan.cluster - 1) / plan.cluster <= 2);
        }
}

TEST(CudaGemv, ManyColumnsNeedNoClusters) {
  constexpr int kShared = 227 * 1024;
  EXPECT_EQ(plan_gemv({1940, 16, 16, 6, 1, Family::byte_sum}, 132, kShared).cluster, 1);
  EXPECT_EQ(plan_gemv({16, 32, 32, 5, 1, Family::byte_sum}, 132, kShared).cluster, 8);
}

TEST(CudaGemv, CountsTheMatricesThatAThreadBlockTouches) {
  const GemvWork down{16, 36, 4, 5, 1, Family::byte_sum};  // nine matrices of four blocks
  EXPECT_EQ(gemv_segments(down, 8), 2);
  EXPECT_EQ(gemv_segments(down, 1), 9);
  EXPECT_EQ(fit_gemv(down, 1, 227 * 1024).slots, 0);  // more than one thread block can touch
  EXPECT_EQ(gemv_segments({16, 32, 32, 5, 1, Family::byte_sum}, 1), 1);
}

TEST(CudaGemv, RefusesMoreRowsThanItsColumnsHold) {
  EXPECT_EQ(plan_gemv({16, 16, 16, 4, 9, Family::byte_sum}, 132, 227 * 1024).slots, 0);
  EXPECT_EQ(plan_gemv({16, 16, 16, 4, 17, Family::half_pair}, 132, 227 * 1024).slots, 0);
}

// A mixture's down for rows that share experts: every thread block transforms the inputs of one matrix for several
// groups of outputs, so its inputs take less room than its weights' blocks would say.
TEST(CudaGemv, OneMatrixInputsForSeveralGroups) {
  constexpr int kShared = 227 * 1024;
  const GemvWork apart{1152, 16, 4, 5, 4, Family::byte_sum}, together{1152, 16, 4, 5, 4, Family::byte_sum, 4};
  const GemvPlan many = fit_gemv(apart, 1, kShared), few = fit_gemv(together, 1, kShared);
  ASSERT_GE(few.slots, 2);
  EXPECT_EQ(gemv_segments(together, 1), 4);
  const int inputs_of_a_block = 2 * activation_bytes(Operand::bytes, 1) + 4 * 8, slot = 2 * 2048 * 5;
  EXPECT_EQ(many.shared_bytes - many.slots * slot - (few.shared_bytes - few.slots * slot), 12 * inputs_of_a_block);
}

TEST(CudaDeltaNet, ChunksWhereSequencesAreLongEnough) {
  EXPECT_TRUE(delta_chunks_pay(16, 1, 128, 128, 4));
  EXPECT_FALSE(delta_chunks_pay(15, 1, 128, 128, 4));
  EXPECT_FALSE(delta_chunks_pay(2048, 129, 128, 128, 4));
  EXPECT_FALSE(delta_chunks_pay(2048, 1, 64, 128, 4));
  EXPECT_FALSE(delta_chunks_pay(2048, 1, 128, 96, 4));
}

/// The slot of a sequence's chunk, as the kernels count.
std::int64_t slot_of(std::int64_t first_row, std::int64_t sequence, std::int64_t chunk) {
  return first_row / kDeltaChunk + sequence + chunk;
}

TEST(CudaDeltaNet, EveryChunkHasASlotOfItsOwnWithinTheWorkSpace) {
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>{64, 64, 64}, {63, 1, 65, 127, 128, 129}, {1, 1, 1, 200}, {17, 900, 3}}) {
    std::set<std::int64_t> slots;
    std::int64_t first = 0, chunks = 0, sequence = 0;
    for (const std::int64_t length : lengths) {
      for (std::int64_t chunk = 0; chunk * kDeltaChunk < length; ++chunk, ++chunks)
        slots.insert(slot_of(first, sequence, chunk));
      first += length;
      ++sequence;
    }
    EXPECT_EQ(static_cast<std::int64_t>(slots.size()), chunks);
    EXPECT_LT(*slots.rbegin(), first / kDeltaChunk + sequence);  // the grid of `solve`
    ASSERT_TRUE(delta_chunks_pay(first, sequence, 128, 128, 4));
    constexpr std::int64_t kHeads = 6, kChannels = 1280;
    const std::int64_t values = kHeads * 128;
    const std::int64_t needed = aligned_floats(first * (values + 2 * kHeads)) + first * (kChannels / 2 + values) +
                                (first / kDeltaChunk + sequence) * kHeads * kDeltaChunk * kDeltaChunk / 2;
    EXPECT_GE(DeltaNetParams::work_floats(first, kChannels, kHeads, 128), needed);
  }
}

TEST(CudaRegime, CountsTheTasksThatABlockCanTouch) {
  EXPECT_EQ(tasks_per_block(132, 18 * 128, 128, 18), 2);  // shares of 18 units: at most two tasks of 128
  EXPECT_EQ(tasks_per_block(132, 10880, 10880, 1), 1);
  EXPECT_EQ(tasks_per_block(132, 40, 4, 10), 3);  // few units: shares of up to seven
}

TEST(CudaRegime, ExpertChunksGrowWithTheRowsOfAnExpert) {
  EXPECT_EQ(expert_chunk(1, 8, 256, 32), 4);
  EXPECT_EQ(expert_chunk(8, 8, 256, 32), 8);
  EXPECT_EQ(expert_chunk(64, 8, 256, 32), 8);
  EXPECT_EQ(expert_chunk(256, 8, 256, 32), 16);
  EXPECT_EQ(expert_chunk(4096, 8, 256, 32), 32);
  EXPECT_EQ(expert_chunk(4096, 8, 256, 16), 16);
  EXPECT_EQ(expert_chunk(256, 8, 256, 64), 64);
  EXPECT_EQ(expert_chunk(64, 8, 256, 64), 8);
}

#endif

}  // namespace
}  // namespace pergola
