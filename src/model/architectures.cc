#include "model/architectures.h"

#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "model/qwen3_5.h"

namespace pergola {

namespace {

struct Architecture {
  std::string_view name;
  ModelBlueprint (*read)(const Checkpoint& checkpoint);
};

constexpr std::array kArchitectures = {
    Architecture{"Qwen3_5ForConditionalGeneration", read_qwen3_5},
    Architecture{"Qwen3_5ForCausalLM", read_qwen3_5},
    Architecture{"Qwen3_5MoeForConditionalGeneration", read_qwen3_5_moe},
    Architecture{"Qwen3_5MoeForCausalLM", read_qwen3_5_moe},
};

/// Weights of another quantisation would be found missing or misread one tensor at a time: say it once.
void check_quantization(const Config& config) {
  const std::optional<Config> quantization = config.object("quantization_config");
  if (!quantization) return;
  const std::string method = quantization->get_string("quant_method", "exl3");
  if (method != "exl3")
    quantization->reject("quant_method",
                         "weights quantised by '{}' are not supported; EXL3 and unquantised weights are", method);
}

}  // namespace

ModelBlueprint read_blueprint(const Checkpoint& checkpoint) {
  const Config& config = checkpoint.config();
  const std::string name = config.architecture();
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name != name) continue;
    check_quantization(config);
    ModelBlueprint blueprint = architecture.read(checkpoint);
    blueprint.architecture = name;
    return blueprint;
  }
  config.reject("architectures", "the architecture '{}' is not supported; supported are {}", name,
                fmt::join(supported_architectures(), ", "));
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

}  // namespace pergola
