// What the OpenCL backend decides without a device.
#ifdef PERGOLA_HAS_OPENCL
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "backend/opencl/kernel_sources.h"
#include "backend/opencl/program_cache.h"
#include "backend/opencl/regime.h"
#include "backend/opencl/weight_arenas.h"

namespace pergola::opencl {
namespace {

namespace fs = std::filesystem;

TEST(OpenClRegime, TilesCoverTheRowsOfAStep) {
  const RowTiles gpu(Precision::standard, false, true), processor(Precision::standard, false, false),
      matrix(Precision::int8, true, true), exact(Precision::exact, true, true);
  EXPECT_EQ(gpu.at(gpu.index_for(1)).rows, 1);
  EXPECT_EQ(gpu.at(gpu.index_for(3)).rows, 4);
  EXPECT_EQ(gpu.at(gpu.index_for(500)).rows, 16);
  EXPECT_EQ(processor.at(processor.index_for(3)).rows, 16);
  EXPECT_EQ(matrix.at(matrix.index_for(1)).arithmetic, Arithmetic::int8);
  EXPECT_EQ(matrix.at(matrix.index_for(2)).arithmetic, Arithmetic::matrix);
  EXPECT_EQ(matrix.at(matrix.index_for(2)).bytes, 1);
  EXPECT_EQ(exact.at(exact.index_for(9)).arithmetic, Arithmetic::rounded);
  EXPECT_EQ(gpu.at(expert_tile(gpu, 8 * 5, 256)).rows, 4);
  EXPECT_EQ(gpu.at(expert_tile(gpu, 8 * 512, 256)).rows, 16);
}

TEST(OpenClRegime, EveryVariantFitsTheLocalMemoryOfTheSmallestDevice) {
  for (const Variant& variant : kVariants) {
    const std::int64_t parts = input_parts(1 << 24, 1, variant.rows, 1 << 20, 1024);
    const std::size_t gates = 128 * sizeof(float) * static_cast<std::size_t>(variant.rows);
    const std::size_t quantizer =
        static_cast<std::size_t>(variant.slab / 8 + 16 + 2) * sizeof(float) * static_cast<std::size_t>(variant.rows);
    EXPECT_LE(scratch_bytes(variant, parts) + gates + quantizer, 48u * 1024) << variant.rows << " " << variant.slab;
  }
}

TEST(OpenClRegime, UnitsAreEnoughForTheWorstSpread) {
  // One expert takes everything: picks / rows units; or every expert one pick.
  EXPECT_GE(most_units(1000, 8, 16), (1000 + 15) / 16);
  EXPECT_GE(most_units(8, 256, 16), 8);
  for (std::int64_t picks = 1; picks < 200; ++picks) {
    // Worst case: as many experts as possible have a partly filled last unit.
    const std::int64_t lone = std::min<std::int64_t>(picks, 7);
    EXPECT_GE(most_units(picks, 8, 4), std::min(picks, lone + (picks - lone + 3) / 4)) << picks;
  }
}

TEST(OpenClRegime, InputsAreSplitOnlyWhereItFillsTheDevice) {
  EXPECT_EQ(input_parts(0, 16, 1, 2048, 1024), 1);        // a processor
  EXPECT_EQ(input_parts(8192, 16, 1, 2048, 1024), 8);     // 16 groups of 64 lanes, 8192 wanted
  EXPECT_EQ(input_parts(8192, 1024, 1, 2048, 1024), 1);   // full already
  EXPECT_EQ(input_parts(1 << 20, 1, 16, 2048, 1024), 4);  // partial sums stay within 32 KB
  EXPECT_EQ(input_parts(1 << 20, 1, 1, 2048, 256), 4);    // within the largest work-group
}

TEST(OpenClArenas, PartsGoToTheNextArenaWhenOneIsFull) {
  const ArenaPlan plan = plan_arenas(std::array<std::size_t, 4>{300, 500, 100, 1000}, 1024);
  EXPECT_THAT(plan.sizes, testing::ElementsAre(1024u, 256u, 1024u));
  EXPECT_EQ(plan.places[1].arena, 0u);
  EXPECT_EQ(plan.places[1].offset, 512u);
  EXPECT_EQ(plan.places[2].arena, 1u);
  EXPECT_EQ(plan.places[3].arena, 2u);
}

TEST(OpenClSources, IncludesAreInPlace) {
  const std::string source = kernel_source("linear.cl");
  EXPECT_EQ(source.find("#include \""), std::string::npos);
  EXPECT_NE(source.find("codebook_value"), std::string::npos);
}

/// A folder of its own that goes away.
struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() /
                  ("pergola-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  TemporaryFolder() { fs::remove_all(path); }
  ~TemporaryFolder() { fs::remove_all(path); }
};

TEST(OpenClProgramCache, KeepsByKeyAndReplacesDamage) {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path);
  const std::vector<unsigned char> binary{1, 2, 3, 0, 255};
  EXPECT_FALSE(cache.find("device A"));
  cache.keep("device A", binary);
  EXPECT_EQ(cache.find("device A"), binary);
  EXPECT_FALSE(cache.find("device B"));

  const auto size = fs::file_size(cache.file_of("device A"));
  fs::resize_file(cache.file_of("device A"), size - 1);
  EXPECT_FALSE(cache.find("device A")) << "cut short";
  cache.keep("device A", binary);
  {
    std::fstream file(cache.file_of("device A"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size) - 1);
    file.put(7);
  }
  EXPECT_FALSE(cache.find("device A")) << "a changed byte";
  cache.keep("device A", binary);
  EXPECT_EQ(cache.find("device A"), binary);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 1) << "no temporary files";
}

TEST(OpenClProgramCache, AnEntryOfAnotherKeyUnderTheSameNameIsNotTaken) {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path);
  cache.keep("device A", {1});
  fs::copy_file(cache.file_of("device A"), cache.file_of("device B"));
  EXPECT_FALSE(cache.find("device B"));
}

TEST(OpenClProgramCache, AFolderThatCannotBeWrittenIsNoError) {
  const ProgramCache cache("/proc/no-such-folder");
  cache.keep("device A", {1});
  EXPECT_FALSE(cache.find("device A"));
}

}  // namespace
}  // namespace pergola::opencl
#endif
