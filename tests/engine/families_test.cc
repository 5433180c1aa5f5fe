// From text to text with the tokenizer of each family and the ends of text that its generation_config.json names.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/vocabulary_rules.h"
#include "support/checkpoint_writer.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

/// The folder of a tiny random model of a family with a family's tokenizer.
class TinyFolder {
 public:
  TinyFolder(const std::string& architecture, const std::string& tokenizer) {
    fs::copy_file(fs::path(PERGOLA_SOURCE_DIR) / "tests" / "data" / "tokenizers" / tokenizer / "tokenizer.json",
                  folder_ / "tokenizer.json");
    vocab_ = (Tokenizer::load(folder_.path()).size() + 63) / 64 * 64;  // padded, as models are
    json config = {{"architectures", {architecture}},
                   {"hidden_size", kWidth},
                   {"intermediate_size", kWidth},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 2},
                   {"num_key_value_heads", 1},
                   {"head_dim", 24},
                   {"max_position_embeddings", 128},
                   {"vocab_size", vocab_},
                   {"sliding_window", 8},
                   {"tie_word_embeddings", true}};
    if (architecture == "LlamaForCausalLM") config.erase("sliding_window");
    testing::write_text(folder_ / "config.json", config.dump());
    write_weights(architecture);
  }

  void end_with(const json& ids) const {
    testing::write_text(folder_ / "generation_config.json", json{{"eos_token_id", ids}}.dump());
  }

  const fs::path& path() const { return folder_.path(); }

 private:
  static constexpr std::int64_t kWidth = 40;

  void add(testing::TensorWriter& tensors, const std::string& name, std::vector<std::int64_t> shape) {
    const bool norm = shape.size() == 1 && name.find("norm") != std::string::npos;
    std::normal_distribution<float> values(norm ? 1.0f : 0.0f, norm ? 0.2f : 0.3f);
    std::int64_t count = 1;
    for (const std::int64_t side : shape) count *= side;
    std::vector<float> floats(static_cast<std::size_t>(count));
    for (float& value : floats) value = values(random_);
    tensors.add_floats(name, std::move(shape), floats);
  }

  void write_weights(const std::string& architecture) {
    testing::TensorWriter tensors;
    add(tensors, "model.embed_tokens.weight", {vocab_, kWidth});
    add(tensors, "model.norm.weight", {kWidth});
    for (int layer = 0; layer < 2; ++layer) {
      const std::string key = fmt::format("model.layers.{}.", layer);
      std::vector<std::string> norms = {"input_layernorm", "post_attention_layernorm"};
      if (architecture.starts_with("Gemma")) {
        norms.insert(norms.end(), {"pre_feedforward_layernorm", "post_feedforward_layernorm"});
        for (const char* name : {"q_norm", "k_norm"}) add(tensors, key + "self_attn." + name + ".weight", {24});
      }
      for (const std::string& name : norms) add(tensors, key + name + ".weight", {kWidth});
      add(tensors, key + "self_attn.q_proj.weight", {48, kWidth});
      add(tensors, key + "self_attn.k_proj.weight", {24, kWidth});
      add(tensors, key + "self_attn.v_proj.weight", {24, kWidth});
      add(tensors, key + "self_attn.o_proj.weight", {kWidth, 48});
      if (architecture.starts_with("Qwen2")) {
        for (const auto& [name, width] : {std::pair{"q", 48}, std::pair{"k", 24}, std::pair{"v", 24}})
          add(tensors, key + "self_attn." + name + "_proj.bias", {width});
      }
      for (const char* name : {"gate_proj", "up_proj", "down_proj"})
        add(tensors, key + "mlp." + name + ".weight", {kWidth, kWidth});
    }
    tensors.write(folder_ / "model.safetensors");
  }

  testing::TempFolder folder_;
  std::int64_t vocab_ = 0;
  std::mt19937 random_{9};
};

struct Family {
  const char* architecture;
  const char* tokenizer;
};

void PrintTo(const Family& family, std::ostream* out) {
  *out << family.architecture << " with " << family.tokenizer;
}

class TextOfFamilies : public ::testing::TestWithParam<Family> {};

Generation write(const TinyFolder& folder, const std::string& prompt) {
  EngineOptions options{.backend = "cpu", .memory = {.context = 96}};
  options.device.max_rows = 16;
  options.device.threads = 1;
  Engine engine(open_model(Checkpoint(folder.path()), options), {});
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  GenerationRequest request;
  request.prompt = tokenizer.encode(prompt, true);
  request.max_tokens = 24;
  request.sampling.temperature = 0.9;  // random weights would repeat one token
  request.sampling.seed = 5;
  request.stop_tokens = stop_tokens(load_generation_config(folder.path(), engine.checkpoint().config()), tokenizer);
  request.mask = sampled_tokens(tokenizer, engine.info().vocab_size);
  const std::atomic<bool> running{false};
  return generate(
      engine, request, [](std::int32_t) {}, running);
}

TEST_P(TextOfFamilies, GoesThroughTheTokenizerAndEndsWhereTheFolderSays) {
  const TinyFolder folder(GetParam().architecture, GetParam().tokenizer);
  const std::string prompt = "The cat sat on the mat, and it's 2024: größer 你好 🎉";
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(prompt, false), true), prompt);

  const Generation free = write(folder, prompt);
  EXPECT_EQ(free.finish, FinishReason::max_tokens);
  ASSERT_EQ(free.tokens.size(), 24u);
  for (const std::int32_t token : free.tokens) EXPECT_TRUE(tokenizer.has_token(token));

  // The tenth token as one of several ends of text: nothing before its first appearance changes.
  const std::int32_t end = free.tokens[9];
  folder.end_with({end, 3});
  const Generation ended = write(folder, prompt);
  EXPECT_EQ(ended.finish, FinishReason::stop_token);
  const auto first = std::find_if(free.tokens.begin(), free.tokens.end(),
                                  [&](std::int32_t token) { return token == end || token == 3; });
  EXPECT_EQ(ended.tokens, std::vector<std::int32_t>(free.tokens.begin(), first));
}

INSTANTIATE_TEST_SUITE_P(Families, TextOfFamilies,
                         ::testing::Values(Family{"LlamaForCausalLM", "llama3"}, Family{"LlamaForCausalLM", "llama2"},
                                           Family{"MistralForCausalLM", "mistral"},
                                           Family{"MistralForCausalLM", "tekken"}, Family{"Qwen2ForCausalLM", "qwen2"},
                                           Family{"Gemma3ForCausalLM", "gemma"}, Family{"LlamaForCausalLM", "o200k"}),
                         [](const auto& family) { return std::string(family.param.tokenizer); });

}  // namespace
}  // namespace pergola
