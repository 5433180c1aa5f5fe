#include "model/architectures.h"

#include <array>

#include "base/error.h"
#include "model/families.h"
#include "model/qwen3_5.h"

namespace pergola {

namespace {

struct Architecture {
  std::string_view name;
  const DecoderFamily* family = nullptr;
  ModelBlueprint (*read)(const Checkpoint& checkpoint) = nullptr;  ///< for what no DecoderFamily describes
};

constexpr std::array kArchitectures = {
    Architecture{"LlamaForCausalLM", &kLlama},
    Architecture{"MistralForCausalLM", &kMistral},
    Architecture{"MinistralForCausalLM", &kMistral},
    Architecture{"Ministral3ForCausalLM", &kMistral},
    Architecture{"Mistral3ForConditionalGeneration", &kMistral},
    Architecture{"Qwen2ForCausalLM", &kQwen2},
    Architecture{"Qwen3ForCausalLM", &kQwen3},
    Architecture{"SmolLM3ForCausalLM", &kSmolLm3},
    Architecture{"Ernie4_5ForCausalLM", &kErnie45},
    Architecture{"SeedOssForCausalLM", &kSeedOss},
    Architecture{"Phi3ForCausalLM", &kPhi3},
    Architecture{"Qwen3MoeForCausalLM", &kQwen3Moe},
    Architecture{"MixtralForCausalLM", &kMixtral},
    Architecture{"Gemma2ForCausalLM", &kGemma2},
    Architecture{"Gemma3ForCausalLM", &kGemma3},
    Architecture{"Gemma3ForConditionalGeneration", &kGemma3},
    Architecture{"Glm4ForCausalLM", &kGlm4},
    Architecture{"Glm4MoeForCausalLM", &kGlm4Moe},
    Architecture{"GptOssForCausalLM", &kGptOss},
    Architecture{"Qwen3NextForCausalLM", nullptr, read_qwen3_5_moe},
    Architecture{"Qwen3_5ForConditionalGeneration", nullptr, read_qwen3_5},
    Architecture{"Qwen3_5ForCausalLM", nullptr, read_qwen3_5},
    Architecture{"Qwen3_5MoeForConditionalGeneration", nullptr, read_qwen3_5_moe},
    Architecture{"Qwen3_5MoeForCausalLM", nullptr, read_qwen3_5_moe},
};

/// Weights of another quantisation would be found missing or misread one tensor at a time: say it once.
void check_quantization(const Config& config, const DecoderFamily* family) {
  const std::optional<Config> quantization = config.object("quantization_config");
  if (!quantization) return;
  const std::string method = quantization->get_string("quant_method", "exl3");
  const bool reads_mxfp4 = family != nullptr && family->experts != nullptr && family->experts->interleaved;
  if (method != "exl3" && method != "fp8" && !(method == "mxfp4" && reads_mxfp4))
    quantization->reject("quant_method",
                         "weights quantised by '{}' are not supported; EXL3, fp8 and unquantised weights are", method);
}

}  // namespace

ModelBlueprint read_blueprint(const Checkpoint& checkpoint) {
  const Config& config = checkpoint.config();
  const std::string name = config.architecture();
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name != name) continue;
    check_quantization(config, architecture.family);
    ModelBlueprint blueprint =
        architecture.family != nullptr ? read_decoder(checkpoint, *architecture.family) : architecture.read(checkpoint);
    blueprint.architecture = name;
    return blueprint;
  }
  config.reject("architectures", "the architecture '{}' is not supported; docs/models.md has those that are", name);
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

}  // namespace pergola
