#include "format/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TensorWriter;

/// The summary of a folder with one file, or with that file's name.
CheckpointSummary summary_of(const std::string& config, const std::function<void(TensorWriter&)>& fill,
                             const std::string& file = "model.safetensors") {
  testing::TempFolder folder;
  testing::write_text(folder / "config.json", config);
  TensorWriter writer;
  fill(writer);
  writer.write(folder / file);
  return summarize(Checkpoint(folder.path()));
}

const GroupSummary* find(const CheckpointSummary& summary, TensorGroup group) {
  for (const GroupSummary& candidate : summary.groups) {
    if (candidate.group == group) return &candidate;
  }
  return nullptr;
}

constexpr const char* kConfig =
    R"({"architectures": ["Test"], "text_config": {"num_hidden_layers": 2}, "quantization_config": {"bits": 3.33}})";

void add_model(TensorWriter& writer) {
  writer.add("model.embed_tokens.weight", DType::bf16, {64, 128}, std::string(16384, 'e'));
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer);
    writer.add(prefix + ".input_layernorm.weight", DType::bf16, {128}, std::string(256, 'n'));
    writer.add_trellis(prefix + ".self_attn.q_proj", 128, 256, 5, Codebook::mcg);
    writer.add(prefix + ".self_attn.q_proj.bias", DType::f16, {256}, std::string(512, 'b'));
    writer.add_trellis(prefix + ".mlp.experts.0.up_proj", 128, 256, 2, Codebook::mul1);
    writer.add_trellis(prefix + ".mlp.experts.1.up_proj", 128, 256, 3, Codebook::mul1);
    writer.add(prefix + ".mlp.gate.weight", DType::f16, {2, 128}, std::string(512, 'r'));
  }
  writer.add_trellis("lm_head", 128, 128, 6, Codebook::three_inst);
  writer.add_trellis("mtp.layers.0.mlp.up_proj", 128, 128, 8, Codebook::mul1);
  writer.add("model.visual.blocks.7.weight", DType::f32, {1}, "1234");
}

TEST(Summary, CountsGroupsBitsAndBytes) {
  const CheckpointSummary summary = summary_of(kConfig, add_model);
  EXPECT_THAT(summary.problems, IsEmpty());
  EXPECT_EQ(summary.architecture, "Test");
  EXPECT_EQ(summary.files, 1);
  EXPECT_EQ(summary.tensors, 1 + 2 * 15 + 3 + 4 + 1);
  EXPECT_NEAR(summary.bits_per_weight, 10.0 / 3, 1e-9);
  const double side_bytes = 2 * (3 * 3 * 256 + 3 * 4 + 512);
  EXPECT_NEAR(summary.stored_bits_per_weight, 10.0 / 3 + side_bytes * 8 / (6 * 128 * 256), 1e-9);
  EXPECT_EQ(summary.head_bits, 6);
  EXPECT_EQ(summary.config_bits, 3.33);

  const GroupSummary& experts = *find(summary, TensorGroup::routed_experts);
  EXPECT_EQ(experts.linears, 4);
  EXPECT_EQ(experts.linears_by_bits[2], 2);
  EXPECT_EQ(experts.linears_by_bits[3], 2);
  EXPECT_EQ(experts.weights_by_bits[3], 2u * 128 * 256);
  EXPECT_EQ(experts.linears_by_codebook[static_cast<std::size_t>(Codebook::mul1)], 4);
  EXPECT_EQ(experts.trellis_bytes, 2u * 128 * 256 * 5 / 8);
  EXPECT_EQ(experts.dense_weights, 2u * 2 * 128);
  EXPECT_EQ(experts.dense_bytes, 1024u);
  EXPECT_EQ(experts.bytes, experts.trellis_bytes + experts.side_bytes + experts.dense_bytes);
  EXPECT_EQ(find(summary, TensorGroup::attention)->linears_by_bits[5], 2);
  EXPECT_EQ(find(summary, TensorGroup::mtp)->linears_by_bits[8], 1);
  EXPECT_EQ(find(summary, TensorGroup::embedding)->dense_weights, 64u * 128);
  EXPECT_EQ(find(summary, TensorGroup::vision)->bytes, 4u);
  EXPECT_EQ(find(summary, TensorGroup::delta_net), nullptr);
  std::uint64_t bytes = 0;
  for (const GroupSummary& group : summary.groups) bytes += group.bytes;
  EXPECT_EQ(bytes, summary.tensor_bytes);
}

TEST(Summary, DenseTensorsAreListedByKind) {
  const CheckpointSummary summary = summary_of(kConfig, add_model);
  std::vector<std::string> kinds;
  for (const DenseKind& kind : summary.dense)
    kinds.push_back(fmt::format("{} {} {}", kind.pattern, name_of(kind.dtype), kind.count));
  EXPECT_THAT(kinds, ElementsAre("model.embed_tokens.weight BF16 1", "model.layers.*.input_layernorm.weight BF16 2",
                                 "model.layers.*.mlp.gate.weight F16 2", "model.visual.blocks.*.weight F32 1"));
}

TEST(Summary, ProblemsAreListedNotThrown) {
  const auto problems =
      summary_of(
          R"({"text_config": {"num_hidden_layers": 3, "mtp_num_hidden_layers": 1}, "quantization_config": {"bits": 4.0}})",
          [](TensorWriter& writer) {
            writer.add_trellis("model.layers.0.mlp.up_proj", 128, 128, 2, Codebook::mul1);
            writer.add("model.layers.0.mlp.up_proj.weight", DType::f16, {1, 1}, "xx");
            writer.add("model.layers.0.mlp.up_proj.mcg", DType::i32, {}, "1234");
            writer.add_trellis("model.layers.1.mlp.up_proj", 128, 128, 2, Codebook::mul1);
            writer.add("model.layers.1.mlp.down_proj.suh", DType::f16, {1}, "xx");
            writer.add("model.layers.1.mlp.gate_proj.trellis", DType::i16, {1, 1, 16}, std::string(32, 't'));
          },
          "model-00002-of-00003.safetensors")
          .problems;
  EXPECT_THAT(problems, Contains(HasSubstr("model.layers.0.mlp.up_proj.trellis: both codebook markers")));
  EXPECT_THAT(problems,
              Contains(HasSubstr(
                  "model.layers.1.mlp.down_proj.suh is there, but model.layers.1.mlp.down_proj.trellis is missing")));
  EXPECT_THAT(problems, Contains(HasSubstr("model.layers.1.mlp.gate_proj.trellis: 1 tiles of 16")));
  EXPECT_THAT(problems, Contains(HasSubstr("1 of 3 files model-*-of-00003.safetensors are here")));
  EXPECT_THAT(problems, Contains(HasSubstr("field architectures")));
  EXPECT_THAT(problems, Contains(HasSubstr("config.json says 3 layers (num_hidden_layers), the tensors are of 2")));
  EXPECT_THAT(problems, Contains(HasSubstr("no mtp tensors")));
  EXPECT_THAT(problems, Contains(HasSubstr("there is no lm_head")));
  EXPECT_THAT(problems, Contains(HasSubstr("config.json says 4.00 bits per weight, the tensors have 2.00")));
}

TEST(Summary, DenseAndTrellisOfOneLinearIsAProblem) {
  const auto problems =
      summary_of(R"({"architectures": ["T"], "tie_word_embeddings": true})", [](TensorWriter& writer) {
        writer.add_trellis("a", 128, 128, 2, Codebook::mul1);
        writer.add("a.weight", DType::f16, {1, 1}, "xx");
      }).problems;
  EXPECT_THAT(problems, ElementsAre("a has both a trellis and a dense weight"));
}

TEST(Summary, ManyProblemsAreCounted) {
  const auto problems =
      summary_of(R"({"architectures": ["T"], "tie_word_embeddings": true})", [](TensorWriter& writer) {
        for (int i = 0; i < 100; ++i) writer.add(std::to_string(i) + ".suh", DType::f16, {1}, "xx");
      }).problems;
  ASSERT_EQ(problems.size(), 21u);
  EXPECT_EQ(problems.back(), "80 more problems like these");
}

TEST(Summary, BadConfigsAreProblems) {
  const auto with = [](const std::string& config) {
    return summary_of(config,
                      [](TensorWriter& writer) {
                        writer.add("lm_head.weight", DType::f16, {1, 1}, "xx");
                      })
        .problems;
  };
  EXPECT_THAT(with(R"({"architectures": ["T"], "text_config": 3})"),
              ElementsAre(HasSubstr("field text_config: expected an object")));
  EXPECT_THAT(with(R"({"architectures": ["T"], "num_hidden_layers": -3})"),
              ElementsAre(HasSubstr("field num_hidden_layers: -3 is not in")));
  EXPECT_THAT(with(R"({"architectures": ["T"], "quantization_config": {"bits": "x"}})"),
              ElementsAre(HasSubstr("field quantization_config.bits")));
}

TEST(Summary, BitsAgreeWithTheConverter) {
  const auto shared = testing::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "the shared folder is not here";
  for (const char* name : {"story-moe-exl3-mul1-4.0", "story-moe-exl3-mcg-3.1"}) {
    const CheckpointSummary summary = summarize(Checkpoint(shared / "models" / name));
    EXPECT_NEAR(summary.bits_per_weight, summary.config_bits.value(), 0.00501) << name;
    EXPECT_EQ(summary.head_bits, 6);
    EXPECT_THAT(summary.problems, ElementsAre(HasSubstr("announces an MTP head")));
  }
  const CheckpointSummary source = summarize(Checkpoint(shared / "models" / "story-moe"));
  EXPECT_EQ(source.bits_per_weight, 0);
  EXPECT_GT(find(source, TensorGroup::routed_experts)->dense_weights, 12000000u);
}

}  // namespace
}  // namespace pergola
