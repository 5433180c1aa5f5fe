// Hostile config.json and generation_config.json: every kind of getter over names that models have.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "format/config.h"
#include "format/generation_config.h"

namespace {

using namespace pergola;

/// Runs one read; an Error is what a bad value should give.
template <typename Read>
void attempt(Read&& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

void read_fields(const Config& config) {
  for (const std::string_view field :
       {"hidden_size", "num_hidden_layers", "vocab_size", "eos_token_id", "rms_norm_eps", "layer_types",
        "mrope_section", "tie_word_embeddings", "hidden_act", "rope_theta"}) {
    attempt([&] { config.require_int(field, 1, 1 << 20); });
    attempt([&] { config.get_int(field, 0, INT64_MIN, INT64_MAX); });
    attempt([&] { config.require_float(field, 0, 1e9); });
    attempt([&] { config.get_bool(field, false); });
    attempt([&] { config.require_string(field); });
    attempt([&] { config.get_ints(field, 0, INT32_MAX); });
    attempt([&] { config.get_string_list(field); });
    attempt([&] { config.check_divides(field, config.get_int(field, 6, INT64_MIN, INT64_MAX), 3, "3"); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attempt([&] {
    const Config config = Config::parse({reinterpret_cast<const char*>(data), size}, "config.json");
    attempt([&] { config.architecture(); });
    attempt([&] { read_generation_config(&config, config); });
    read_fields(config);
    attempt([&] { read_fields(config.text()); });
    for (const std::string_view part : {"rope_parameters", "rope_scaling", "quantization_config"}) {
      attempt([&] {
        if (const auto object = config.text().object(part)) read_fields(*object);
      });
    }
  });
  return 0;
}
