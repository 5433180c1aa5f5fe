#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "model/architectures.h"
#include "model/qwen3_5_config.h"
#include "model/rope_parameters.h"
#include "support/checkpoint_writer.h"
#include "support/tiny_qwen.h"

namespace pergola {
namespace {

using nlohmann::json;
using testing::TinyQwen;

Config parse(const json& value) {
  return Config::parse(value.dump(), "config.json");
}

/// The message with which a changed configuration of a tiny mixture-of-experts model is refused; empty if it is not.
std::string refusal(const std::function<void(json& text)>& change, bool mixture_of_experts = true) {
  TinyQwen tiny;
  tiny.experts = mixture_of_experts ? 8 : 0;
  json config = tiny.config();
  change(config["text_config"]);
  try {
    read_qwen3_5_config(parse(config), mixture_of_experts);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Qwen35Config, RefusesByNameWhatWouldChangeTheMathematics) {
  const std::vector<std::pair<std::string, json>> bad{
      {"attn_output_gate", false},
      {"output_gate_type", "sigmoid"},
      {"hidden_act", "gelu"},
      {"norm_topk_prob", false},
      {"mlp_only_layers", json::array({0})},
      {"decoder_sparse_step", 2},
      {"use_sliding_window", true},
      {"layer_types", json::array({"linear_attention", "sliding_attention", "full_attention", "full_attention"})},
      {"layer_types", json::array({"linear_attention"})},
      {"rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 1e7}}},
      {"rope_parameters", {{"rope_type", "default"}}},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 0.0}}},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 1.5}}},
  };
  for (const auto& [field, value] : bad) {
    const std::string message = refusal([&, name = field, set = value](json& text) { text[name] = set; });
    EXPECT_NE(message.find(field == "rope_parameters" ? "rope" : field), std::string::npos)
        << field << " = " << value << ": '" << message << "'";
  }
}

TEST(Qwen35Config, RefusesSizesThatAreZeroNegativeHugeMissingOrDoNotDivide) {
  const std::vector<const char*> sizes{"hidden_size",
                                       "vocab_size",
                                       "num_hidden_layers",
                                       "num_attention_heads",
                                       "num_key_value_heads",
                                       "head_dim",
                                       "linear_num_key_heads",
                                       "linear_num_value_heads",
                                       "linear_key_head_dim",
                                       "linear_value_head_dim",
                                       "linear_conv_kernel_dim",
                                       "num_experts",
                                       "num_experts_per_tok",
                                       "moe_intermediate_size",
                                       "shared_expert_intermediate_size",
                                       "max_position_embeddings"};
  for (const char* size : sizes) {
    for (const json& value : {json(0), json(-1), json(std::int64_t{1} << 62), json(1.5), json("4"), json::array()}) {
      EXPECT_NE(refusal([&](json& text) { text[size] = value; }).find(size), std::string::npos)
          << size << " = " << value;
    }
  }
  for (const char* size : {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
                           "num_key_value_heads", "head_dim", "num_experts"}) {
    EXPECT_NE(refusal([&](json& text) { text.erase(size); }).find(size), std::string::npos) << size;
  }
  EXPECT_NE(refusal([](json& text) { text.erase("intermediate_size"); }, false).find("intermediate_size"),
            std::string::npos);
  EXPECT_NE(refusal([](json& text) { text["num_key_value_heads"] = 3; }).find("num_key_value_heads"),
            std::string::npos);
  EXPECT_NE(refusal([](json& text) { text["linear_num_value_heads"] = 5; }).find("linear_num_value_heads"),
            std::string::npos);
  EXPECT_NE(refusal([](json& text) { text["num_experts_per_tok"] = 9; }).find("num_experts_per_tok"),
            std::string::npos);
}

TEST(Qwen35Config, IgnoresWhatTextDoesNotUse) {
  EXPECT_EQ(refusal([](json& text) {
              text["rope_parameters"]["mrope_section"] = {99, -3, 0};
              text["router_aux_loss_coef"] = "none";
              text["mtp_num_hidden_layers"] = 7;
              text["mtp_use_dedicated_embeddings"] = true;
              text["output_router_logits"] = true;
              text["attention_dropout"] = 0.5;
              text["norm_topk_prob"] = true;
              text["output_gate_type"] = "swish";
              text["mlp_only_layers"] = json::array();
              text["bos_token_id"] = nullptr;
            }),
            "");
}

TEST(Qwen35Config, TakesTheIntervalWhereLayerTypesAreAbsent) {
  json config = TinyQwen{}.config();
  config["text_config"].erase("layer_types");
  config["text_config"]["num_hidden_layers"] = 6;
  EXPECT_EQ(read_qwen3_5_config(parse(config), false).full_attention,
            (std::vector<bool>{false, false, false, true, false, false}));
  config["text_config"]["full_attention_interval"] = 2;
  EXPECT_EQ(read_qwen3_5_config(parse(config), false).full_attention,
            (std::vector<bool>{false, true, false, true, false, true}));
}

TEST(Rope, HasTheFrequenciesOfQwen) {
  const RopeParameters rope =
      read_rope(parse({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000000}}}}), 256,
                {.partial_factor = 0.25});
  ASSERT_EQ(rope.dims, 64);
  ASSERT_EQ(rope.inv_freq.size(), 32u);
  EXPECT_FLOAT_EQ(rope.inv_freq[0], 1.0f);
  EXPECT_NEAR(rope.inv_freq[1], 0.604296f, 1e-6);
  EXPECT_NEAR(rope.inv_freq[2], 0.365174f, 1e-6);
  EXPECT_NEAR(rope.inv_freq[31], 1.6548e-7f, 1e-11);
  EXPECT_EQ(rope.magnitude, 1.0f);
}

TEST(Rope, StretchesLowFrequenciesWithYarn) {
  const json parameters{
      {"rope_type", "yarn"}, {"rope_theta", 10000000}, {"factor", 4.0}, {"original_max_position_embeddings", 262144}};
  const RopeParameters rope = read_rope(parse({{"rope_parameters", parameters}}), 256, {.partial_factor = 0.25});
  const RopeParameters plain =
      read_rope(parse({{"rope_parameters", {{"rope_theta", 10000000}}}}), 256, {.partial_factor = 0.25});
  // The ramp goes from pair 14 to pair 22.
  for (std::size_t j = 0; j <= 14; ++j) EXPECT_FLOAT_EQ(rope.inv_freq[j], plain.inv_freq[j]) << j;
  EXPECT_FLOAT_EQ(rope.inv_freq[18], plain.inv_freq[18] * (0.5f + 0.5f / 4));
  for (std::size_t j = 22; j < 32; ++j) EXPECT_FLOAT_EQ(rope.inv_freq[j], plain.inv_freq[j] / 4) << j;
  EXPECT_NEAR(rope.magnitude, 1.13863, 1e-5);
}

/// The message with which a written tiny checkpoint is refused.
std::string blueprint_refusal(const TinyQwen& tiny, const std::function<void(json& config)>& change) {
  const testing::TempFolder folder;
  tiny.write(folder.path());
  json config = tiny.config();
  change(config);
  testing::write_text(folder / "config.json", config.dump());
  try {
    read_blueprint(Checkpoint(folder.path()));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Blueprint, RefusesWhatItDoesNotKnow) {
  const std::string unknown =
      blueprint_refusal({}, [](json& config) { config["architectures"] = {"MysteryForCausalLM"}; });
  EXPECT_NE(unknown.find("MysteryForCausalLM"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("docs/models.md"), std::string::npos) << unknown;
  EXPECT_NE(blueprint_refusal({}, [](json& config) { config["architectures"] = json::array(); }).find("architectures"),
            std::string::npos);
  const std::string method =
      blueprint_refusal({}, [](json& config) { config["quantization_config"]["quant_method"] = "awq"; });
  EXPECT_NE(method.find("awq"), std::string::npos) << method;
}

TEST(Blueprint, NamesTheTensorThatIsMissingOrMisshapen) {
  const std::string more = blueprint_refusal({}, [](json& config) {
    config["text_config"]["num_hidden_layers"] = 5;
    config["text_config"]["layer_types"].push_back("linear_attention");
  });
  EXPECT_NE(more.find("layers.4."), std::string::npos) << more;
  const std::string narrow =
      blueprint_refusal({}, [](json& config) { config["text_config"]["linear_num_value_heads"] = 4; });
  EXPECT_NE(narrow.find("linear_attn."), std::string::npos) << narrow;
  const std::string bias = blueprint_refusal({}, [](json& config) { config["text_config"]["attention_bias"] = true; });
  EXPECT_NE(bias.find("q_proj"), std::string::npos) << bias;
  TinyQwen tied;
  tied.tied = true;
  const std::string head = blueprint_refusal(tied, [](json& config) { config["tie_word_embeddings"] = false; });
  EXPECT_NE(head.find("lm_head"), std::string::npos) << head;
}

TEST(Blueprint, PrefersAStoredHeadOverATiedOne) {
  EXPECT_EQ(blueprint_refusal({}, [](json& config) { config["tie_word_embeddings"] = true; }), "");
  const testing::TempFolder folder;
  TinyQwen tiny;
  tiny.weights = TinyQwen::Weights::exl3;
  tiny.write(folder.path());
  json config = tiny.config();
  config["tie_word_embeddings"] = true;
  testing::write_text(folder / "config.json", config.dump());
  const Checkpoint checkpoint(folder.path());
  EXPECT_NE(read_blueprint(checkpoint).head.trellis(), nullptr);
}

TEST(Blueprint, RefusesFusedExpertsThatDoNotMatchTheConfiguration) {
  TinyQwen tiny;
  tiny.experts = 8;
  tiny.fused_experts = true;
  // Fewer experts than stored would fit into the fused tensor; the router and the tensor must say the same number.
  const std::string message =
      blueprint_refusal(tiny, [](json& config) { config["text_config"]["moe_intermediate_size"] = 100; });
  EXPECT_NE(message.find("experts.gate_up_proj"), std::string::npos) << message;
}

}  // namespace
}  // namespace pergola
