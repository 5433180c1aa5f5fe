// Normalizers, pre-tokenizers, decoders and regular expressions one by one against what Hugging Face's library makes.
#include <gtest/gtest.h>

#include "fixtures.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace pergola {
namespace {

using Json = nlohmann::json;

TEST(Components, Normalizers) {
  for (const Json& component : read_fixture("normalizers.json")) {
    SCOPED_TRACE(component["config"].dump());
    const auto normalizer = read_normalizer(JsonNode(component["config"], "normalizers.json"));
    for (const Json& one : component["cases"]) {
      std::string text = one[0];
      bool at_origin = true;
      normalizer->apply(text, at_origin);
      EXPECT_EQ(text, one[1]) << one[0];
    }
  }
}

TEST(Components, PreTokenizers) {
  for (const Json& component : read_fixture("pre_tokenizers.json")) {
    SCOPED_TRACE(component["config"].dump());
    const auto pre_tokenizer = read_pre_tokenizer(JsonNode(component["config"], "pre_tokenizers.json"));
    for (const Json& one : component["cases"]) {
      const std::string text = one[0];
      Pieces pieces = {text, {}};
      if (!text.empty()) pieces.list.push_back({0, text.size(), true});
      pre_tokenizer->apply(pieces);
      std::vector<std::string> words;
      for (const Pieces::Piece& piece : pieces.list) words.emplace_back(pieces.view(piece));
      EXPECT_EQ(words, one[1].get<std::vector<std::string>>()) << one[0];
    }
  }
}

TEST(Components, Decoders) {
  for (const Json& component : read_fixture("decoders.json")) {
    SCOPED_TRACE(component["config"].dump());
    const Json& config = component["config"];
    const Decoder decoder = config.is_null() ? Decoder() : Decoder(JsonNode(config, "decoders.json"));
    for (const Json& one : component["cases"]) {
      Decoder::Run run(decoder, false);
      for (const std::string piece : one[0]) run.push(piece);
      run.finish();
      EXPECT_EQ(run.text(), one[1]) << one[0];
    }
  }
}

// Spans of code points as spans of bytes.
std::vector<std::string> cut(const std::string& text, const Json& spans) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) starts.push_back(at);
  starts.push_back(text.size());
  std::vector<std::string> parts;
  for (const Json& span : spans) {
    const std::size_t begin = starts[span[0].get<std::size_t>()];
    parts.push_back(text.substr(begin, starts[span[1].get<std::size_t>()] - begin));
  }
  return parts;
}

TEST(Components, RegularExpressions) {
  for (const Json& component : read_fixture("regexes.json")) {
    const std::string pattern = component["pattern"];
    SCOPED_TRACE(pattern);
    // What the library refuses and what we do: PCRE2 gives \X and \K another meaning.
    if (component["cases"].is_null() || pattern == "\\X" || pattern == "\\K") {
      EXPECT_THROW(Regex(pattern, {}), Error);
      continue;
    }
    const Regex regex(pattern, {});
    for (const Json& one : component["cases"]) {
      const std::string text = one[0];
      std::vector<Span> matches;
      regex.find_all(text, matches);
      std::vector<std::string> found;
      for (const Span& match : matches) {
        if (match.begin < match.end) found.push_back(text.substr(match.begin, match.end - match.begin));
      }
      EXPECT_EQ(found, cut(text, one[1])) << one[0];
    }
  }
}

}  // namespace
}  // namespace pergola
