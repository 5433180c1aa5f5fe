// A hostile JSON Schema (or, behind a first byte 'r', a regular expression): an error, or a grammar whose texts, found
// by walking it, end. JSON that a schema's grammar gives is valid.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "format/json.h"
#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"

namespace {

using namespace pergola;

// Walks the grammar, choosing bytes by a small generator; checks what it spells when it ends.
void walk(const Grammar& grammar, std::uint64_t seed, bool json) {
  Matcher matcher(grammar.automaton());
  Matcher::Configuration at = matcher.start(false);
  std::string text;
  for (int step = 0; step < 200; ++step) {
    if (matcher.accepts(at)) {
      if (json && !nlohmann::json::accept(text)) std::abort();
      if (!matcher.continues(at)) return;
    }
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    Matcher::Configuration next = Matcher::kDead;
    for (int tried = 0; tried < 256 && next == Matcher::kDead; ++tried) {
      const auto byte = static_cast<unsigned char>((seed >> 33) + static_cast<std::uint64_t>(tried));
      next = matcher.next(at, byte);
      if (next != Matcher::kDead) text += static_cast<char>(byte);
    }
    if (next == Matcher::kDead) return;  // only where rules are nested too deep
    at = next;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size > 4096) return 0;
  try {
    const bool regex = input.starts_with('r');
    const Grammar grammar = regex ? Grammar::regex(input.substr(1), "r")
                                  : Grammar::json_schema(parse_ordered_json(input, "schema"), "schema");
    for (std::uint64_t seed = 1; seed <= 3; ++seed) walk(grammar, seed, !regex);
  } catch (const Error&) {
  }
  return 0;
}
