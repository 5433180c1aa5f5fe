#include "format/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/half.h"
#include "format/allocation_peak.h"
#include "format/tensor_values.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;
using testing::TempFolder;
using testing::TensorWriter;

constexpr const char* kConfig = R"({"architectures": ["Test"], "hidden_size": 128})";

/// A model folder of one file that `fill` writes.
class Folder {
 public:
  explicit Folder(const std::function<void(TensorWriter&)>& fill) {
    TensorWriter writer;
    fill(writer);
    writer.write(folder_ / "model.safetensors");
    testing::write_text(folder_ / "config.json", kConfig);
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

/// What is said when the linear "p" (128 in, 256 out) of such a folder is asked for.
std::string refusal_of_linear(const std::function<void(TensorWriter&)>& fill) {
  const Folder folder(fill);
  const Checkpoint checkpoint(folder.path());
  return refusal(1000, [&] { checkpoint.check_marker(checkpoint.linear("p", 128, 256)); });
}

std::string zeros(std::size_t bytes) {
  return std::string(bytes, '\0');
}

/// The parts of a good linear "p" of K = 2, without those that a test leaves out or replaces.
void add_parts(TensorWriter& writer, const std::string& without = "") {
  if (without != "suh") writer.add("p.suh", DType::f16, {128}, zeros(256));
  if (without != "svh") writer.add("p.svh", DType::f16, {256}, zeros(512));
  if (without != "trellis") writer.add("p.trellis", DType::i16, {8, 16, 32}, zeros(8192));
}

TEST(Checkpoint, ReadsEveryFileOfTheFolder) {
  TempFolder folder;
  testing::write_text(folder / "config.json", kConfig);
  testing::write_text(folder / "model.safetensors.index.json", "not read");
  testing::write_text(folder / "._model.safetensors", "left by another system");
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
  EXPECT_THAT(to_floats(*checkpoint.linear("a", 3, 2).dense()), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_NE(checkpoint.linear("b", 128, 256).trellis(), nullptr);
  EXPECT_FALSE(checkpoint.has_linear("c"));
  checkpoint.release_pages();
  checkpoint.release_pages(checkpoint.require("odd").bytes);
  EXPECT_THAT(to_floats(*checkpoint.linear("a", 3, 2).dense()), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Checkpoint, SurvivesAMove) {
  const Folder folder([](TensorWriter& writer) { writer.add_trellis("b", 128, 256, 3, Codebook::mcg); });
  Checkpoint first(folder.path());
  const LinearView before = first.linear("b", 128, 256);
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.linear("b", 128, 256).trellis()->trellis.data(), before.trellis()->trellis.data());
  EXPECT_EQ(second.trellis_below("").size(), 0u);
  EXPECT_EQ(second.config().architecture(), "Test");
}

TEST(Checkpoint, BitsAndCodebookComeFromEachTensor) {
  const Folder folder([](TensorWriter& writer) {
    writer.add("shift", DType::u8, {1}, "x");  // everything behind it starts at an odd byte
    for (int bits = 1; bits <= 8; ++bits) {
      for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1}) {
        writer.add_trellis(fmt::format("l.{}.{}", bits, name_of(codebook)), 256, 384, bits, codebook);
      }
    }
  });
  testing::write_text(folder.path() / "config.json",
                      R"({"architectures": ["T"], "quantization_config": {"bits": 4, "codebook": "mcg"}})");
  const Checkpoint checkpoint(folder.path());
  for (int bits = 1; bits <= 8; ++bits) {
    for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1}) {
      const LinearView linear = checkpoint.linear(fmt::format("l.{}.{}", bits, name_of(codebook)), 256, 384);
      ASSERT_NE(linear.trellis(), nullptr);
      EXPECT_EQ(linear.trellis()->bits, bits);
      EXPECT_EQ(linear.trellis()->codebook, codebook);
      EXPECT_NO_THROW(checkpoint.check_marker(linear));
      EXPECT_EQ(linear.trellis()->in_features, 256);
      EXPECT_EQ(linear.trellis()->out_features, 384);
      EXPECT_EQ(linear.trellis()->trellis.size(), 256u * 384 * bits / 8);
      EXPECT_EQ(linear.trellis()->suh.size(), 512u);
      EXPECT_EQ(linear.trellis()->svh.size(), 768u);
      EXPECT_FALSE(linear.bias);
    }
  }
}

TEST(Checkpoint, LegacySignWordsAreExpanded) {
  const Folder folder([](TensorWriter& writer) {
    add_parts(writer, "suh");
    writer.add("p.su", DType::i16, {8}, bytes_of(std::vector<std::uint16_t>{0x0001, 0x8000, 0xFFFF, 0, 0, 0, 0, 2}));
  });
  const Checkpoint checkpoint(folder.path());
  const LinearView linear = checkpoint.linear("p", 128, 256);
  const auto suh = to_floats({DType::f16, 1, 128, linear.trellis()->suh});
  for (int i = 0; i < 128; ++i)
    EXPECT_EQ(suh[i], i == 0 || i == 31 || (i >= 32 && i < 48) || i == 113 ? -1.0f : 1.0f) << i;
  EXPECT_EQ(checkpoint.linear("p", 128, 256).trellis()->suh.data(), linear.trellis()->suh.data());
}

TEST(Checkpoint, PaddedTrellisServesItsLogicalWidths) {
  const Folder folder([](TensorWriter& writer) { writer.add_trellis("p", 256, 384, 4, Codebook::mul1); });
  const Checkpoint checkpoint(folder.path());
  for (const auto& [in, out] : {std::pair(256, 384), std::pair(200, 300), std::pair(129, 257)}) {
    const LinearView linear = checkpoint.linear("p", in, out);
    EXPECT_EQ(linear.in_features, in);
    EXPECT_EQ(linear.out_features, out);
    EXPECT_EQ(linear.trellis()->in_features, 256);
    EXPECT_EQ(linear.trellis()->out_features, 384);
  }
  for (const auto& [in, out] : {std::pair(257, 384), std::pair(256, 385), std::pair(128, 384), std::pair(256, 256)}) {
    EXPECT_THAT(refusal(0, [&] { checkpoint.linear("p", in, out); }),
                HasSubstr("stored widths 256 x 384 do not fit the model's"))
        << in;
  }
}

TEST(Checkpoint, BiasesOfEveryTypeAndPadding) {
  const Folder folder([](TensorWriter& writer) {
    writer.add_trellis("half", 128, 256, 2, Codebook::mcg);
    writer.add("half.bias", DType::f16, {256}, std::string(512, 'h'));
    writer.add_trellis("float", 128, 256, 2, Codebook::mcg);
    writer.add("float.bias", DType::f32, {200}, std::string(800, 'f'));
    writer.add("dense.weight", DType::bf16, {3, 2}, zeros(12));
    writer.add("dense.bias", DType::bf16, {3}, std::string(6, 'b'));
    writer.add("bad.weight", DType::bf16, {3, 2}, zeros(12));
    writer.add("bad.bias", DType::bf16, {2}, zeros(4));
    writer.add("ints.weight", DType::bf16, {3, 2}, zeros(12));
    writer.add("ints.bias", DType::i16, {3}, zeros(6));
  });
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.linear("half", 128, 256).bias->bytes.size(), 512u);
  EXPECT_EQ(checkpoint.linear("half", 128, 200).bias->bytes.size(), 400u);
  EXPECT_EQ(checkpoint.linear("float", 128, 200).bias->bytes.size(), 800u);
  EXPECT_EQ(checkpoint.linear("dense", 2, 3).bias->dtype, DType::bf16);
  EXPECT_THAT(refusal(0, [&] { checkpoint.linear("float", 128, 201); }),
              HasSubstr("tensor float.bias: expected shape [201], found [200]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.linear("bad", 2, 3); }),
              HasSubstr("tensor bad.bias: expected shape [3], found [2]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.linear("ints", 2, 3); }),
              HasSubstr("tensor ints.bias: expected F32, F16 or BF16, found I16"));
}

TEST(Checkpoint, DenseWeightsOfEveryFloatType) {
  const std::vector<float> values{1, -2, 0.5f, 4, 0, 8};
  std::vector<std::uint16_t> halves;
  std::vector<std::uint16_t> brains;
  for (const float value : values) {
    halves.push_back(to_half(value).bits);
    brains.push_back(to_bfloat16(value).bits);
  }
  const Folder folder([&](TensorWriter& writer) {
    writer.add("shift", DType::u8, {1}, "x");
    writer.add_floats("f32.weight", {2, 3}, values);
    writer.add("f16.weight", DType::f16, {2, 3}, bytes_of(halves));
    writer.add("bf16.weight", DType::bf16, {2, 3}, bytes_of(brains));
    writer.add("f8.weight", DType::f8_e5m2, {2, 3}, zeros(6));
    writer.add("padded.weight", DType::f16, {256, 2}, zeros(1024));
  });
  const Checkpoint checkpoint(folder.path());
  for (const char* key : {"f32", "f16", "bf16"})
    EXPECT_EQ(to_floats(*checkpoint.linear(key, 3, 2).dense()), values) << key;
  EXPECT_EQ(to_floats(checkpoint.dense("f16.weight", {2, 3})), values);
  EXPECT_EQ(checkpoint.linear("padded", 2, 200).dense()->rows, 200);
  EXPECT_EQ(checkpoint.linear("padded", 2, 200).dense()->bytes.size(), 800u);
  EXPECT_THAT(refusal(0, [&] { checkpoint.linear("padded", 2, 128); }),
              HasSubstr("expected shape [128, 2], found [256, 2]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.linear("f8", 3, 2); }),
              HasSubstr("tensor f8.weight: expected F32, F16, BF16 or F8_E4M3, found F8_E5M2"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.linear("f32", 2, 3); }), HasSubstr("expected shape [3, 2], found [2, 3]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.dense("f32.weight", {6}); }), HasSubstr("expected shape [6], found [2, 3]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.dense("shift", {1}); }),
              HasSubstr("tensor shift: expected F32, F16 or BF16, found U8"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.dense("absent", {1}); }), HasSubstr("tensor absent: the tensor is missing"));
}

TEST(Checkpoint, DenseViewsOfVectorsAndConvolutions) {
  const Folder folder([](TensorWriter& writer) {
    writer.add_floats("norm", {4}, {1, 2, 3, 4});
    writer.add_floats("conv", {2, 1, 2}, {1, 2, 3, 4});
  });
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.dense("norm", {4}).rows, 1);
  EXPECT_EQ(checkpoint.dense("norm", {4}).columns, 4);
  EXPECT_EQ(checkpoint.dense("conv", {2, 1, 2}).rows, 2);
  EXPECT_EQ(checkpoint.dense("conv", {2, 1, 2}).columns, 2);
}

TEST(Checkpoint, FusedExpertsAreSlicesOfRows) {
  const Folder folder([](TensorWriter& writer) {
    std::vector<float> values(2 * 4 * 3);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    writer.add_floats("e.gate_up_proj", {2, 4, 3}, values);
    writer.add("e.ints", DType::i32, {2, 4, 3}, zeros(96));
    writer.add_trellis("x.experts.0.gate_proj", 128, 128, 2, Codebook::mul1);
  });
  const Checkpoint checkpoint(folder.path());
  const LinearView up = checkpoint.fused_expert("e.gate_up_proj", 1, 2, 2, 3);
  EXPECT_EQ(up.name, "e.gate_up_proj[1]");
  EXPECT_EQ(up.out_features, 2);
  EXPECT_THAT(to_floats(*up.dense()), ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_THAT(to_floats(*checkpoint.fused_expert("e.gate_up_proj", 0, 0, 1, 3).dense()), ElementsAre(0, 1, 2));
  EXPECT_THAT(refusal(0, [&] { checkpoint.fused_expert("e.gate_up_proj", 2, 0, 4, 3); }),
              HasSubstr("expected at least shape [3, 4, 3]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.fused_expert("e.gate_up_proj", 0, 3, 2, 3); }),
              HasSubstr("[1, 5, 3], found [2, 4, 3]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.fused_expert("e.gate_up_proj", 0, 0, 4, 4); }), HasSubstr("found [2, 4, 3]"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.fused_expert("e.ints", 0, 0, 4, 3); }), HasSubstr("found I32"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.fused_expert("e.none", 0, 0, 4, 3); }), HasSubstr("missing"));
  EXPECT_THAT(refusal(0, [&] { checkpoint.fused_expert("x.experts", 0, 0, 4, 3); }),
              HasSubstr("there is a trellis below this name, x.experts.0.gate_proj"));
}

TEST(CheckpointRefuses, TrellisOfAWrongShape) {
  const auto with = [](DType dtype, std::vector<std::int64_t> shape) {
    return refusal_of_linear([&](TensorWriter& writer) {
      std::size_t bytes = size_of(dtype);
      for (const std::int64_t dimension : shape) bytes *= static_cast<std::size_t>(dimension);
      add_parts(writer, "trellis");
      writer.add("p.trellis", dtype, shape, zeros(bytes));
    });
  };
  EXPECT_THAT(with(DType::i16, {128, 32}),
              HasSubstr("tensor p.trellis: a trellis has 3 dimensions, not shape [128, 32]"));
  EXPECT_THAT(with(DType::i16, {1, 8, 16, 32}), HasSubstr("3 dimensions"));
  EXPECT_THAT(with(DType::i16, {8, 16, 24}), HasSubstr("last dimension 24 is not 16 times a K"));
  EXPECT_THAT(with(DType::i16, {8, 16, 0}), HasSubstr("last dimension 0"));
  EXPECT_THAT(with(DType::i16, {8, 16, 144}), HasSubstr("last dimension 144"));
  EXPECT_THAT(with(DType::i16, {7, 16, 32}), HasSubstr("7 tiles of 16 in dimension 0 do not make a multiple of 128"));
  EXPECT_THAT(with(DType::i16, {8, 12, 32}), HasSubstr("12 tiles of 16 in dimension 1"));
  EXPECT_THAT(with(DType::i16, {0, 16, 32}), HasSubstr("0 tiles"));
  EXPECT_THAT(with(DType::f16, {8, 16, 32}), HasSubstr("a trellis is I16, not F16"));
  EXPECT_THAT(with(DType::i16, {8, 24, 32}), HasSubstr("tensor p.svh: expected shape [384], found [256]"));
}

TEST(CheckpointRefuses, MissingOrMisshapenSignVectors) {
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) { add_parts(writer, "suh"); }),
              HasSubstr("tensor p.trellis: p.suh is missing"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) { add_parts(writer, "svh"); }), HasSubstr("p.svh is missing"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) { add_parts(writer, "trellis"); }),
              HasSubstr("p.suh is there, but p.trellis is missing"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) {
                add_parts(writer, "suh");
                writer.add("p.weight", DType::f16, {256, 128}, zeros(65536));
              }),
              HasSubstr("p.suh is missing"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) {
                add_parts(writer, "suh");
                writer.add("p.suh", DType::bf16, {128}, zeros(256));
              }),
              HasSubstr("tensor p.suh: expected F16, found BF16"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) {
                add_parts(writer, "suh");
                writer.add("p.suh", DType::f16, {1, 128}, zeros(256));
              }),
              HasSubstr("tensor p.suh: expected shape [128], found [1, 128]"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) {
                add_parts(writer, "svh");
                writer.add("p.sv", DType::i16, {15}, zeros(30));
              }),
              HasSubstr("tensor p.sv: expected shape [16], found [15]"));
}

TEST(CheckpointRefuses, BadCodebookMarkers) {
  const auto with = [](const std::function<void(TensorWriter&)>& add) {
    return refusal_of_linear([&](TensorWriter& writer) {
      add_parts(writer);
      add(writer);
    });
  };
  const auto scalar = [](std::uint32_t value) { return bytes_of(std::vector<std::uint32_t>{value}); };
  EXPECT_THAT(with([&](TensorWriter& writer) {
                writer.add("p.mcg", DType::i32, {}, scalar(kMcgMultiplier));
                writer.add("p.mul1", DType::i32, {}, scalar(kMul1Multiplier));
              }),
              HasSubstr("both codebook markers, mcg and mul1"));
  EXPECT_THAT(with([&](TensorWriter& writer) { writer.add("p.mcg", DType::i32, {}, scalar(kMul1Multiplier)); }),
              HasSubstr("multiplier 0x83dcd12d is not the 0xcbac1fed of codebook mcg"));
  EXPECT_THAT(with([&](TensorWriter& writer) { writer.add("p.mul1", DType::i32, {}, scalar(1)); }),
              HasSubstr("tensor p.mul1, byte"));
  EXPECT_THAT(with([&](TensorWriter& writer) { writer.add("p.mul1", DType::i32, {2}, zeros(8)); }),
              HasSubstr("a codebook marker is one I32, not I32 [2]"));
  EXPECT_THAT(with([&](TensorWriter& writer) { writer.add("p.mul1", DType::i32, {0}, ""); }), HasSubstr("one I32"));
  EXPECT_THAT(with([&](TensorWriter& writer) { writer.add("p.mul1", DType::f32, {}, zeros(4)); }),
              HasSubstr("not F32"));
}

TEST(CheckpointRefuses, AmbiguousOrAbsentLinears) {
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) {
                add_parts(writer);
                writer.add("p.weight", DType::f16, {256, 128}, zeros(65536));
              }),
              HasSubstr("there is also a dense p.weight"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) { writer.add("q", DType::u8, {1}, "x"); }),
              HasSubstr("tensor p: the linear is missing: there is neither p.trellis nor p.weight"));
  EXPECT_THAT(
      refusal_of_linear([](TensorWriter& writer) { writer.add_trellis("p.slice.0", 128, 128, 2, Codebook::mul1); }),
      HasSubstr("there is a trellis below it, p.slice.0"));
  EXPECT_THAT(refusal_of_linear([](TensorWriter& writer) {
                writer.add("p.weight", DType::f16, {256, 128}, zeros(65536));
                writer.add_trellis("p.0", 128, 128, 2, Codebook::mul1);
              }),
              HasSubstr("there is a trellis below it, p.0"));
}

TEST(Checkpoint, DamagedLinearsAreNotTakenForAbsentOnes) {
  const Folder folder([](TensorWriter& writer) { writer.add("lm_head.suh", DType::f16, {128}, zeros(256)); });
  EXPECT_TRUE(Checkpoint(folder.path()).has_linear("lm_head"));
}

TEST(CheckpointRefuses, FoldersThatAreNoModels) {
  TempFolder folder;
  const auto open = [&](const std::filesystem::path& path) { return refusal(0, [&] { Checkpoint checkpoint(path); }); };
  EXPECT_THAT(open(folder / "absent"), HasSubstr("there is no such folder"));
  EXPECT_THAT(open(folder.path()), HasSubstr("this is not a model folder: it holds no config.json"));
  testing::write_text(folder / "config.json", kConfig);
  EXPECT_THAT(open(folder / "config.json"), HasSubstr("this is not a folder"));
  EXPECT_THAT(open(folder.path()), HasSubstr("it holds no *.safetensors file"));
  std::filesystem::create_directory(folder / "x.safetensors");
  EXPECT_THAT(open(folder.path()), HasSubstr("x.safetensors: not a regular file"));
  std::filesystem::remove(folder / "x.safetensors");
  ASSERT_EQ(::mkfifo((folder / "x.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(open(folder.path()), HasSubstr("x.safetensors: not a regular file"));
  std::filesystem::remove(folder / "x.safetensors");
  std::filesystem::create_symlink("nowhere", folder / "x.safetensors");
  EXPECT_THAT(open(folder.path()), HasSubstr("x.safetensors: cannot open"));
  std::filesystem::remove(folder / "x.safetensors");
  testing::write_text(folder / "x.safetensors", "");
  EXPECT_THAT(open(folder.path()), HasSubstr("x.safetensors: 0 bytes are too few"));
}

TEST(CheckpointRefuses, FilesWithoutReadPermission) {
  const Folder folder([](TensorWriter& writer) { writer.add("t", DType::u8, {1}, "x"); });
  const bool root = ::geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  const auto open_unprivileged = [&] {
    if (root) {
      ASSERT_EQ(::seteuid(kNobody), 0);
    }
    Checkpoint checkpoint(folder.path());
  };
  const auto attempt = [&] {
    const std::string message = refusal(0, open_unprivileged);
    if (root) {
      EXPECT_EQ(::seteuid(0), 0);
    }
    return message;
  };
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  for (const char* name : {"model.safetensors", "config.json"}) {
    std::filesystem::permissions(folder.path() / name, std::filesystem::perms::none);
    EXPECT_THAT(attempt(), HasSubstr(std::string(name) + ": cannot open: Permission denied"));
    std::filesystem::permissions(folder.path() / name, std::filesystem::perms(0644));
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms::none);
  EXPECT_THAT(attempt(), HasSubstr("Permission denied"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0711));  // may be entered, not listed
  EXPECT_THAT(attempt(), HasSubstr("cannot read the folder: Permission denied"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
}

TEST(Checkpoint, SharedModelsOpen) {
  const auto shared = testing::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "the shared folder is not here";
  for (const char* name : {"story-moe", "story-moe-exl3-mul1-4.0", "story-moe-exl3-mcg-3.1"}) {
    const Checkpoint checkpoint(shared / "models" / name);
    EXPECT_EQ(checkpoint.config().text().require_int("hidden_size", 1, 1 << 20), 256);
    EXPECT_EQ(checkpoint.linear("lm_head", 256, 4096).out_features, 4096);
    checkpoint.dense("model.language_model.embed_tokens.weight", {4096, 256});
    for (const TensorEntry& entry : checkpoint.entries()) {
      if (!entry.name.ends_with(".trellis")) continue;
      const LinearView linear =
          checkpoint.linear(entry.name.substr(0, entry.name.size() - 8), entry.shape[0] * 16, entry.shape[1] * 16);
      EXPECT_EQ(name_of(linear.trellis()->codebook),
                std::string(name).find("mcg") == std::string::npos ? "mul1" : "mcg");
    }
  }
  const Checkpoint source(shared / "models" / "story-moe");
  EXPECT_EQ(
      source.fused_expert("model.language_model.layers.7.mlp.experts.gate_up_proj", 15, 128, 128, 256).out_features,
      128);
}

}  // namespace
}  // namespace pergola
