// Whole tokenizers of every style against what Hugging Face's library made of the same texts and ids.
#include <gtest/gtest.h>

#include <algorithm>

#include "fixtures.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace pergola {
namespace {

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(tokenizer_fixtures())) {
    if (entry.is_directory()) found.push_back(entry.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  Golden()
      : tokenizer(Tokenizer::load(tokenizer_fixtures() / GetParam())),
        golden(read_fixture(GetParam() + "/golden.json")) {}

  std::string stream(const std::vector<std::int32_t>& ids, bool skip_special) const {
    StreamDecoder decoder(tokenizer, skip_special);
    std::string text;
    for (const std::int32_t id : ids) {
      const std::string_view piece = decoder.push(id);
      EXPECT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    return text.append(decoder.finish());
  }

  Tokenizer tokenizer;
  nlohmann::json golden;
};

TEST_P(Golden, Encodes) {
  for (const auto& one : golden["encode"]) {
    const std::string text = one["text"];
    EXPECT_EQ(tokenizer.encode(text, false), one["ids"].get<std::vector<std::int32_t>>()) << one["text"];
    EXPECT_EQ(tokenizer.encode(text, true), one["all_ids"].get<std::vector<std::int32_t>>()) << one["text"];
  }
}

TEST_P(Golden, Decodes) {
  for (const char* part : {"encode", "decode"}) {
    for (const auto& one : golden[part]) {
      const std::vector<std::int32_t> ids = one["ids"];
      EXPECT_EQ(tokenizer.decode(ids, false), one["decoded"]) << one["ids"];
      EXPECT_EQ(tokenizer.decode(ids, true), one["skipped"]) << one["ids"];
    }
  }
}

TEST_P(Golden, StreamsTheSameText) {
  for (const char* part : {"encode", "decode"}) {
    for (const auto& one : golden[part]) {
      const std::vector<std::int32_t> ids = one["ids"];
      const std::string whole = one["decoded"];
      const std::string streamed = stream(ids, false);
      // A broken run of "<0xNN>" pieces is the one thing that differs, see decoder.cc.
      if (streamed.find(replacement_character) == std::string::npos ||
          whole.find(replacement_character) == std::string::npos) {
        EXPECT_EQ(streamed, whole) << one["ids"];
        EXPECT_EQ(stream(ids, true), one["skipped"]) << one["ids"];
      }
    }
  }
}

TEST_P(Golden, StreamContinuesAContext) {
  for (const auto& one : golden["encode"]) {
    const std::vector<std::int32_t> ids = one["ids"];
    if (ids.size() < 4) continue;
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(ids.size() / 2);
    StreamDecoder first(tokenizer, false);
    std::string text;
    for (auto id = ids.begin(); id != middle; ++id) text += first.push(*id);
    StreamDecoder second(tokenizer, false, std::vector<std::int32_t>(ids.begin(), middle));
    for (auto id = middle; id != ids.end(); ++id) text += second.push(*id);
    text += second.finish();
    EXPECT_EQ(text, stream(ids, false));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, testing::ValuesIn(names()), [](const auto& parameter) {
  std::string name = parameter.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace pergola
