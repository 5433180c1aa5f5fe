// What families make of configurations: refusals by name, older spellings, defaults, memory of windows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "base/error.h"
#include "format/checkpoint.h"
#include "model/architectures.h"
#include "model/attention_block.h"
#include "model/plan.h"
#include "model/rope_parameters.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

/// A fixture's weights with a changed configuration.
class Changed {
 public:
  Changed(const std::string& fixture, const std::function<void(json&)>& change) {
    const fs::path from = fs::path(PERGOLA_SOURCE_DIR) / "tests" / "data" / "architectures" / fixture;
    fs::create_symlink(from / "model.safetensors", folder_ / "model.safetensors");
    json config = json::parse(std::ifstream(from / "config.json"));
    change(config);
    testing::write_text(folder_ / "config.json", config.dump());
  }

  ModelBlueprint read() const { return read_blueprint(Checkpoint(folder_.path())); }

  std::string refusal() const {
    try {
      read();
    } catch (const Error& error) {
      return error.what();
    }
    return "was accepted";
  }

  const fs::path& path() const { return folder_.path(); }

 private:
  testing::TempFolder folder_;
};

std::function<void(json&)> set(std::string field, json value) {
  return [field, value](json& config) { config[field] = value; };
}

struct Refusal {
  const char* fixture;
  const char* field;
  json value;
  const char* says;
};

TEST(Families, RefuseByNameWhatChangesTheMathematics) {
  const std::vector<Refusal> refusals = {
      {"llama", "hidden_act", "gelu", "'gelu'"},
      {"llama", "attention_bias", true, "q_proj.bias"},
      {"llama", "mlp_bias", true, "gate_proj.bias"},
      {"llama", "logits_scaling", 8, "logits_scaling"},
      {"llama", "residual_multiplier", 0.22, "residual_multiplier"},
      {"llama", "num_local_experts", 8, "num_local_experts"},
      {"llama", "use_qk_norm", true, "use_qk_norm"},
      {"llama", "sliding_window", 512, "sliding_window"},
      {"llama", "layer_types", {"sliding_attention", "full_attention"}, "sliding_attention"},
      {"llama", "layer_types", {"full_attention"}, "1 layer types for 2 layers"},
      {"llama", "num_key_value_heads", 3, "num_attention_heads"},
      {"llama", "attn_logit_softcapping", 50.0, "attn_logit_softcapping"},
      {"mistral", "layer_types", {"chunked_attention", "full_attention"}, "chunked_attention"},
      {"qwen2", "layer_types", {"linear_attention", "full_attention", "full_attention"}, "linear_attention"},
      {"qwen3", "query_pre_attn_scalar", 256, "query_pre_attn_scalar"},
      {"qwen3-moe", "n_shared_experts", 1, "n_shared_experts"},
      {"qwen3-moe", "num_experts_per_tok", 7, "num_experts_per_tok"},
      {"gemma2", "hidden_activation", "relu", "'relu'"},
      {"gemma3", "use_bidirectional_attention", true, "use_bidirectional_attention"},
      {"gemma3", "attn_logit_softcapping", 30.0, "attn_logit_softcapping"},
      {"glm4-moe", "norm_topk_prob", false, "norm_topk_prob"},
      {"glm4-moe", "n_group", 3, "n_group"},
      {"glm4-moe", "topk_group", 1, "topk_group"},
      {"gpt-oss", "swiglu_limit", 5.0, "swiglu_limit"},
      {"gpt-oss", "attention_bias", false, "q_proj.bias"},
      {"smollm3", "no_rope_layers", {1, 0}, "no_rope_layers"},
  };
  for (const Refusal& refusal : refusals) {
    const std::string message = Changed(refusal.fixture, set(refusal.field, refusal.value)).refusal();
    EXPECT_THAT(message, ::testing::HasSubstr(refusal.says)) << refusal.fixture << ", " << refusal.field;
  }
}

TEST(Families, AreAllInTheDocumentation) {
  std::ifstream file(fs::path(PERGOLA_SOURCE_DIR) / "docs" / "models.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const std::string& name : supported_architectures()) EXPECT_THAT(text, ::testing::HasSubstr("`" + name + "`"));
}

TEST(Families, RefuseUnknownRotaryEmbeddings) {
  const auto rope = [](const json& parameters) { return set("rope_parameters", parameters); };
  EXPECT_THAT(Changed("llama", rope({{"rope_type", "dynamic"}, {"factor", 2.0}})).refusal(),
              ::testing::HasSubstr("'dynamic'"));
  EXPECT_THAT(Changed("llama", rope({{"rope_type", "llama3"}, {"factor", 2.0}})).refusal(),
              ::testing::HasSubstr("low_freq_factor"));
  EXPECT_THAT(Changed("phi3", rope({{"rope_type", "longrope"}, {"short_factor", {1.0}}})).refusal(),
              ::testing::HasSubstr("short_factor"));
}

TEST(Families, TakeWhatIsNeutral) {
  for (const auto& [field, value] : std::vector<std::pair<std::string, json>>{{"logits_scaling", 1.0},
                                                                              {"num_experts", 0},
                                                                              {"clip_qkv", nullptr},
                                                                              {"alibi", false},
                                                                              {"layer_types", json::array()}})
    EXPECT_EQ(Changed("llama", set(field, value)).refusal(), "was accepted") << field;
}

const AttentionBlueprint& attention(const ModelBlueprint& model, std::size_t layer) {
  return std::get<AttentionBlueprint>(model.layers[layer].mixer);
}

TEST(Families, ReadOlderSpellingsOfRotaryEmbeddings) {
  const auto same = Changed("llama", [](json& config) {
    const json parameters = config["rope_parameters"];
    config.erase("rope_parameters");
    config["rope_theta"] = parameters["rope_theta"];
    config["rope_scaling"] = parameters;
    config["rope_scaling"].erase("rope_theta");
    config["rope_scaling"].erase("rope_type");
    config["rope_scaling"]["type"] = "llama3";
  });
  const Changed modern("llama", [](json&) {});
  EXPECT_EQ(attention(same.read(), 0).inv_freq, attention(modern.read(), 0).inv_freq);

  const auto gemma = Changed("gemma3", [](json& config) {
    config.erase("rope_parameters");
    config["rope_theta"] = 1e6;
    config["rope_local_base_freq"] = 1e4;
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
    config.erase("layer_types");
  });
  const ModelBlueprint old = gemma.read();
  const ModelBlueprint now = Changed("gemma3", [](json&) {}).read();
  for (std::size_t i = 0; i < now.layers.size(); ++i) {
    EXPECT_EQ(attention(old, i).inv_freq, attention(now, i).inv_freq) << i;
    EXPECT_EQ(attention(old, i).layer.window, attention(now, i).layer.window) << i;
  }
  EXPECT_NE(attention(now, 0).inv_freq, attention(now, 2).inv_freq);
}

TEST(Families, ReadNestedConfigurations) {
  const auto nested = Changed("gemma3", [](json& config) {
    const json text = config;
    config = {{"architectures", {"Gemma3ForConditionalGeneration"}}, {"vision_config", {{"hidden_size", 16}}}};
    config["text_config"] = text;
  });
  EXPECT_EQ(nested.read().layers.size(), 4u);
}

TEST(Families, LimitLongRopeToItsOriginalContext) {
  EXPECT_EQ(Changed("phi3-longrope", [](json&) {}).read().max_positions, 64);
}

TEST(Families, TreatAWindowAsLongAsTheContextAsNone) {
  const ModelBlueprint model = Changed("mistral", set("sliding_window", 512)).read();
  EXPECT_EQ(attention(model, 0).layer.window, 0);
}

TEST(Families, KeepWindowsInRingsThatDoNotGrowWithTheContext) {
  const Changed gemma("gemma3", [](json&) {});
  const std::unique_ptr<Backend> backend = open_backend("reference", {.max_rows = 32});
  const ModelPlan plan = plan_model(gemma.read(), *backend);
  const std::size_t token = 2 * 2 * 24 * 4;   // keys and values of 2 heads x 24 in fp32
  EXPECT_EQ(plan.kv_bytes_per_token, token);  // one of four layers sees everything
  EXPECT_EQ(plan.state_bytes_per_slot, 3 * token * (10 - 1 + 32 + 1));
}

/// The values of published configurations (what matters to the mathematics, as those files spell it): each is read to
/// its end, which is the first tensor after the embedding.
TEST(Families, AcceptPublishedConfigurations) {
  const json all =
      json::parse(std::ifstream(fs::path(PERGOLA_SOURCE_DIR) / "tests" / "data" / "published_configs.json"));
  EXPECT_GE(all.size(), 25u);
  for (const auto& [name, config] : all.items()) {
    const json& text = config.contains("text_config") ? config["text_config"] : config;
    const std::int64_t vocab = text.value("vocab_size", 262208);
    const std::int64_t hidden = text["hidden_size"];
    const testing::TempFolder folder;
    testing::write_text(folder / "config.json", config.dump());
    const json header = {{"model.embed_tokens.weight",
                          {{"dtype", "BF16"}, {"shape", {vocab, hidden}}, {"data_offsets", {0, vocab * hidden * 2}}}}};
    const std::string start = testing::raw_safetensors(header.dump());
    testing::write_text(folder / "model.safetensors", start);
    // A sparse file: nothing of the table is on disk.
    fs::resize_file(folder / "model.safetensors", start.size() + static_cast<std::size_t>(vocab * hidden * 2));
    try {
      read_blueprint(Checkpoint(folder.path()));
      ADD_FAILURE() << name << " was read without its tensors";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("layers.0.")) << name;
      EXPECT_THAT(error.what(), ::testing::HasSubstr("missing")) << name;
    }
  }
}

TEST(Rope, BlendsTheFrequenciesOfLlama3) {
  const Config config = Config::parse(
      R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
      "config.json");
  const RopeParameters rope = read_rope(config, 128, {});
  const RopeParameters plain = plain_rope(500000.0, 128);
  EXPECT_EQ(rope.inv_freq[0], plain.inv_freq[0]);
  EXPECT_EQ(rope.inv_freq[63], plain.inv_freq[63] / 8);
  // Pair 32 turns once in 2 pi sqrt(500000) = 4443 positions, between 2048 and 8192.
  const double smooth = (8192 / 4442.883 - 1) / 3;
  EXPECT_NEAR(rope.inv_freq[32] / plain.inv_freq[32], (1 - smooth) / 8 + smooth, 1e-5);
}

TEST(Rope, TakesTheAttentionFactorOfYarnFromBothScales) {
  const auto magnitude = [](const std::string& more) {
    const Config config = Config::parse(
        R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0,
            "original_max_position_embeddings": 4096)" +
            more + "}}",
        "config.json");
    return read_rope(config, 64, {}).magnitude;
  };
  EXPECT_NEAR(magnitude(""), 0.1 * std::log(16.0) + 1, 1e-6);
  EXPECT_NEAR(magnitude(R"(, "mscale": 1.0, "mscale_all_dim": 1.0)"), 1.0, 1e-6);
  EXPECT_NEAR(magnitude(R"(, "mscale": 2.0, "mscale_all_dim": 1.0)"),
              (0.2 * std::log(16.0) + 1) / (0.1 * std::log(16.0) + 1), 1e-6);
  EXPECT_NEAR(magnitude(R"(, "attention_factor": 1.5, "mscale": 2.0)"), 1.5, 1e-6);
}

}  // namespace
}  // namespace pergola
