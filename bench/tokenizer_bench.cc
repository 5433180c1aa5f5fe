// Speed of encode and decode in bytes of text a second on one thread. English prose is the start of WikiText-2's test
// split, which stands in the shared folder (PERGOLA_SHARED, or next to the source); the random texts have no repeated
// words, so that nothing comes from the cache of words.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/random.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace pergola {
namespace {

const std::filesystem::path source = PERGOLA_SOURCE_DIR;

std::filesystem::path shared_folder() {
  const char* path = std::getenv("PERGOLA_SHARED");
  return path != nullptr ? path : source / ".." / "shared";
}

enum class Text { prose, random_letters, random_han, spaces, one_word };

std::string make_text(Text kind) {
  if (kind == Text::prose) {
    std::ifstream file(shared_folder() / "data" / "eval.txt", std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return std::move(text).str();
  }
  RandomStream random(1);
  std::string text;
  while (text.size() < 400'000) {
    switch (kind) {
      case Text::random_letters:
        for (std::uint64_t i = random.next() % 8 + 3; i > 0; --i) text += static_cast<char>('a' + random.next() % 26);
        text += ' ';
        break;
      case Text::random_han:
        utf8_append(text, static_cast<char32_t>(0x4E00 + random.next() % 5000));
        if (random.next() % 12 == 0) text += "，";
        break;
      case Text::spaces:
        text += random.next() % 100 == 0 ? '\n' : ' ';
        break;
      default:
        text += static_cast<char>('a' + random.next() % 26);
    }
  }
  return text;
}

Tokenizer load(const std::string& name) {
  if (name == "story") return Tokenizer::load(source / "models" / "story");
  return Tokenizer::load(source / "tests" / "data" / "tokenizers" / name);
}

void encode(benchmark::State& state, const char* name, Text kind) {
  const std::string text = make_text(kind);
  if (text.empty()) return state.SkipWithError("no eval.txt in the shared folder");
  const Tokenizer tokenizer = load(name);
  std::size_t tokens = 0;
  for (auto _ : state) tokens += tokenizer.encode(text, true).size();
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.counters["bytes/token"] = static_cast<double>(state.iterations() * text.size()) / static_cast<double>(tokens);
}

void decode(benchmark::State& state, const char* name) {
  const std::string text = make_text(Text::prose);
  if (text.empty()) return state.SkipWithError("no eval.txt in the shared folder");
  const Tokenizer tokenizer = load(name);
  const std::vector<std::int32_t> ids = tokenizer.encode(text, true);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids, true));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

BENCHMARK_CAPTURE(encode, story_prose, "story", Text::prose)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, story_random_letters, "story", Text::random_letters)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, story_random_han, "story", Text::random_han)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, story_spaces, "story", Text::spaces)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, story_one_word, "story", Text::one_word)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, o200k_prose, "o200k", Text::prose)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, llama2_prose, "llama2", Text::prose)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, llama2_random_letters, "llama2", Text::random_letters)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, metaspace_prose, "metaspace", Text::prose)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, story, "story")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, llama2, "llama2")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pergola

BENCHMARK_MAIN();
