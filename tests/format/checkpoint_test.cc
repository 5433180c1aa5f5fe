#include "format/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/tensor_values.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using testing::TempFolder;
using testing::TensorWriter;

constexpr const char* kConfig = R"({"architectures": ["Test"], "hidden_size": 128})";

TEST(Checkpoint, ReadsEveryFileOfTheFolder) {
  TempFolder folder;
  testing::write_text(folder / "config.json", kConfig);
  TensorWriter first;
  first.add_floats("a.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  first.write(folder / "model-00001-of-00002.safetensors");
  TensorWriter second;
  second.add("odd", DType::u8, {3}, "xyz");
  second.add_trellis("b", 128, 256, 3, Codebook::mul1);
  second.write(folder / "other.safetensors");

  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.entries().size(), 6u);
  EXPECT_EQ(checkpoint.config().architecture(), "Test");
  EXPECT_THAT(to_floats(*checkpoint.linear("a", 3, 2).dense()), ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  const LinearView linear = checkpoint.linear("b", 128, 256);
  ASSERT_NE(linear.trellis(), nullptr);
  EXPECT_EQ(linear.trellis()->bits, 3);
  EXPECT_EQ(linear.trellis()->codebook, Codebook::mul1);
  EXPECT_EQ(linear.trellis()->trellis.size(), 128u * 256 * 3 / 8);
  EXPECT_FALSE(linear.bias);
  EXPECT_FALSE(checkpoint.has_linear("c"));
}

TEST(Checkpoint, SharedModelsOpen) {
  const auto shared = testing::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "the shared folder is not here";
  for (const char* name : {"story-moe", "story-moe-exl3-mul1-4.0", "story-moe-exl3-mcg-3.1"}) {
    const Checkpoint checkpoint(shared / "models" / name);
    EXPECT_EQ(checkpoint.config().text().require_int("hidden_size", 1, 1 << 20), 256);
    EXPECT_EQ(checkpoint.linear("lm_head", 256, 4096).out_features, 4096);
    checkpoint.dense("model.language_model.embed_tokens.weight", {4096, 256});
  }
}

}  // namespace
}  // namespace pergola
