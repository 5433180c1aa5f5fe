// Packed weights in the families: the same model with every packed linear replaced by the dense weight that it stands
// for must give the same logits. Widths are padded (SmolLM's hidden 576 and kv 192), projections partly fused.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "format/checkpoint.h"
#include "model/model.h"
#include "support/checkpoint_writer.h"
#include "support/model_runner.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

using json = nlohmann::json;
using testing::TempFolder;
using testing::TensorWriter;

std::int64_t padded(std::int64_t width) {
  return (width + 127) / 128 * 128;
}

/// Names and logical widths of linears that are packed.
struct Packed {
  std::string key;
  std::int64_t in;
  std::int64_t out;
};

/// A model of random weights, written packed and dense.
class Twins {
 public:
  Twins(json config, std::vector<Packed> linears, const std::function<void(TensorWriter&, Twins&)>& rest)
      : config_(std::move(config)) {
    TensorWriter packed;
    std::uint32_t seed = 1;
    int kind = 0;
    for (const Packed& linear : linears) {
      packed.add_trellis(linear.key, padded(linear.in), padded(linear.out), 3 + kind % 4,
                         static_cast<Codebook>(kind % 3), ++seed);
      ++kind;
    }
    rest(packed, *this);
    write(packed, packed_);

    const Checkpoint checkpoint(packed_.path());
    TensorWriter dense;
    for (const Packed& linear : linears) {
      const LinearView view = checkpoint.linear(linear.key, linear.in, linear.out);
      const std::vector<double> whole = effective_weight(*view.trellis());
      std::vector<float> cut;
      for (std::int64_t j = 0; j < linear.out; ++j) {
        for (std::int64_t i = 0; i < linear.in; ++i)
          cut.push_back(static_cast<float>(whole[static_cast<std::size_t>(j * padded(linear.in) + i)]));
      }
      dense.add_floats(linear.key + ".weight", {linear.out, linear.in}, cut);
    }
    random_.seed(5);
    rest(dense, *this);
    write(dense, dense_);
  }

  std::vector<float> normal(std::int64_t count, float mean, float deviation) {
    std::normal_distribution<float> values(mean, deviation);
    std::vector<float> result(static_cast<std::size_t>(count));
    for (float& value : result) value = values(random_);
    return result;
  }

  /// Logits of a few tokens.
  static std::vector<float> run(const std::filesystem::path& folder, const char* backend_name) {
    const Checkpoint checkpoint(folder);
    const std::unique_ptr<Backend> backend =
        open_backend(backend_name, {.threads = 2, .precision = Precision::exact, .max_rows = 16});
    const std::unique_ptr<Model> model = Model::load(checkpoint, *backend);
    std::vector<std::int32_t> tokens(21);
    std::iota(tokens.begin(), tokens.end(), 3);
    return testing::ModelRunner(*model, *backend, 1, 32).sequence(0, tokens, 16);
  }

  void compare() const {
    const std::vector<float> expected = run(dense_.path(), "reference");
    EXPECT_LE(distance(run(packed_.path(), "reference"), expected), 2e-5);
    EXPECT_LE(distance(run(packed_.path(), "cpu"), expected), 2e-2);
    EXPECT_LE(distance(run(dense_.path(), "cpu"), expected), 2e-5);
  }

 private:
  void write(const TensorWriter& tensors, const TempFolder& folder) const {
    tensors.write(folder / "model.safetensors");
    testing::write_text(folder / "config.json", config_.dump());
  }

  static double distance(const std::vector<float>& actual, const std::vector<float>& expected) {
    EXPECT_EQ(actual.size(), expected.size());
    double difference = 0;
    double largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference = std::max(difference, static_cast<double>(std::abs(actual[i] - expected[i])));
      largest = std::max(largest, static_cast<double>(std::abs(expected[i])));
    }
    return std::isfinite(difference) ? difference / largest : INFINITY;
  }

  json config_;
  TempFolder packed_;
  TempFolder dense_;
  std::mt19937 random_{5};
};

void add_norms(TensorWriter& tensors, Twins& twins, std::int64_t hidden) {
  for (const char* name : {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"})
    tensors.add_floats(name + std::string(".weight"), {hidden}, twins.normal(hidden, 1.0f, 0.2f));
}

json base_config(const char* architecture, std::int64_t hidden) {
  return {{"architectures", {architecture}},
          {"hidden_size", hidden},
          {"num_hidden_layers", 1},
          {"max_position_embeddings", 256},
          {"intermediate_size", 200},
          {"vocab_size", 150},
          {"rms_norm_eps", 1e-5}};
}

std::vector<Packed> llama_linears(std::int64_t hidden, std::int64_t q, std::int64_t kv) {
  const std::string layer = "model.layers.0.";
  return {{layer + "self_attn.q_proj", hidden, q},  {layer + "self_attn.k_proj", hidden, kv},
          {layer + "self_attn.v_proj", hidden, kv}, {layer + "self_attn.o_proj", q, hidden},
          {layer + "mlp.gate_proj", hidden, 200},   {layer + "mlp.up_proj", hidden, 200},
          {layer + "mlp.down_proj", 200, hidden},   {"lm_head", hidden, 150}};
}

TEST(Exl3Families, PaddedWidthsOfSmolLm) {
  json config = base_config("LlamaForCausalLM", 576);
  config["num_attention_heads"] = 9;
  config["num_key_value_heads"] = 3;
  config["tie_word_embeddings"] = true;  // the packed head wins
  Twins(config, llama_linears(576, 576, 192), [](TensorWriter& tensors, Twins& twins) {
    add_norms(tensors, twins, 576);
    tensors.add_floats("model.embed_tokens.weight", {150, 576}, twins.normal(150 * 576, 0, 1));
  }).compare();
}

TEST(Exl3Families, PaddedWidthsWithBiases) {
  json config = base_config("Qwen2ForCausalLM", 200);
  config["num_attention_heads"] = 5;
  config["num_key_value_heads"] = 1;
  Twins(config, llama_linears(200, 200, 40), [](TensorWriter& tensors, Twins& twins) {
    add_norms(tensors, twins, 200);
    tensors.add_floats("model.embed_tokens.weight", {150, 200}, twins.normal(150 * 200, 0, 1));
    for (const auto& [name, width] : {std::pair{"q", 200}, std::pair{"k", 40}, std::pair{"v", 40}})
      tensors.add_floats(std::string("model.layers.0.self_attn.") + name + "_proj.bias", {width},
                         twins.normal(width, 0, 0.5f));
  }).compare();
}

TEST(Exl3Families, FusedProjectionsAreTakenApart) {
  json config = base_config("Phi3ForCausalLM", 256);
  config["num_attention_heads"] = 4;
  config["num_key_value_heads"] = 2;
  config["intermediate_size"] = 384;
  const std::string layer = "model.layers.0.";
  const std::vector<Packed> linears = {{layer + "self_attn.qkv_proj", 256, 512},
                                       {layer + "self_attn.o_proj", 256, 256},
                                       {layer + "mlp.gate_up_proj", 256, 768},
                                       {layer + "mlp.down_proj", 384, 256},
                                       {"lm_head", 256, 150}};
  Twins(config, linears, [](TensorWriter& tensors, Twins& twins) {
    add_norms(tensors, twins, 256);
    tensors.add_floats("model.embed_tokens.weight", {150, 256}, twins.normal(150 * 256, 0, 1));
  }).compare();
}

TEST(Exl3Families, FusedProjectionsThatNoBlockDividesAreRefused) {
  TensorWriter tensors;
  tensors.add_trellis("fused", 128, 256, 4, Codebook::mcg);
  const TempFolder folder;
  tensors.write(folder / "model.safetensors");
  testing::write_text(folder / "config.json", "{}");
  const Checkpoint checkpoint(folder.path());
  const LinearView whole = checkpoint.linear("fused", 128, 200);
  const Checkpoint::OutputRange last{128, 72}, odd{100, 100};
  EXPECT_EQ(checkpoint.select_outputs(whole, std::span(&last, 1)).out_features, 72);
  EXPECT_THROW(checkpoint.select_outputs(whole, std::span(&odd, 1)), Error);
}

TEST(Exl3Families, ProjectionsOfQwen3NextAreRegrouped) {
  json config = base_config("Qwen3NextForCausalLM", 128);
  config.update({{"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"head_dim", 64},
                 {"layer_types", {"linear_attention"}},
                 {"rope_theta", 1e6},
                 {"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 4},
                 {"linear_key_head_dim", 128},
                 {"linear_value_head_dim", 64},
                 {"num_experts", 2},
                 {"num_experts_per_tok", 1},
                 {"moe_intermediate_size", 128},
                 {"shared_expert_intermediate_size", 128}});
  const std::string layer = "model.layers.0.";
  std::vector<Packed> linears = {{layer + "linear_attn.in_proj_qkvz", 128, 1024},
                                 {layer + "linear_attn.out_proj", 256, 128},
                                 {"lm_head", 128, 150}};
  for (const char* expert : {"experts.0.", "experts.1.", "shared_expert."}) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      linears.push_back({layer + "mlp." + expert + name, 128, 128});
  }
  Twins(config, linears, [&](TensorWriter& tensors, Twins& twins) {
    add_norms(tensors, twins, 128);
    const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape, float mean, float deviation) {
      std::int64_t count = 1;
      for (const std::int64_t side : shape) count *= side;
      tensors.add_floats(name, shape, twins.normal(count, mean, deviation));
    };
    add("model.embed_tokens.weight", {150, 128}, 0, 1);
    add(layer + "linear_attn.in_proj_ba.weight", {8, 128}, 0, 0.1f);
    add(layer + "linear_attn.conv1d.weight", {768, 1, 4}, 0, 0.5f);
    add(layer + "linear_attn.A_log", {4}, 0, 0.5f);
    add(layer + "linear_attn.dt_bias", {4}, 0, 0.5f);
    add(layer + "linear_attn.norm.weight", {64}, 1, 0.2f);
    add(layer + "mlp.gate.weight", {2, 128}, 0, 0.1f);
    add(layer + "mlp.shared_expert_gate.weight", {1, 128}, 0, 0.1f);
  }).compare();
}

}  // namespace
}  // namespace pergola
