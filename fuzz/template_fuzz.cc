// A hostile chat template over a fixed conversation: an error or a text, in bounded time and memory.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/jinja/template.h"

namespace {

using namespace pergola;

const nlohmann::ordered_json& variables() {
  static const nlohmann::ordered_json value = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "H\u00e9llo <b> \ud83c\udf89"},
                 {"role": "assistant", "content": "<think>\nx\n</think>\n\ny", "tool_calls": [{"id": "a1b2c3d4e",
                  "function": {"name": "f", "arguments": {"a": 1, "b": [1.5, null, true], "c": "x\ny"}}}]},
                 {"role": "tool", "content": "{}"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 5, "l": [3, 1, 2]})");
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const jinja::Limits limits{.steps = 100'000, .output_bytes = std::size_t{1} << 20};
    const jinja::Template program({reinterpret_cast<const char*>(data), size}, "t");
    program.render(variables(), limits);
  } catch (const Error&) {
  }
  return 0;
}
