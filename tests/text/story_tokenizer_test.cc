// The tokenizer of the bundled model against token ids that Hugging Face's library made.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/tokenizer.h"

namespace pergola {
namespace {

std::filesystem::path shared_folder() {
  if (const char* path = std::getenv("PERGOLA_SHARED")) return path;
  return std::filesystem::path(PERGOLA_SOURCE_DIR) / ".." / "shared";
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// The only tensor of a safetensors file, as int32.
std::vector<std::int32_t> read_ids(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::vector<std::int32_t> ids((bytes.size() - 8 - header) / 4);
  std::memcpy(ids.data(), bytes.data() + 8 + header, ids.size() * 4);
  return ids;
}

class StoryTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(shared_folder() / "data" / "eval.txt"))
      GTEST_SKIP() << "the shared folder with eval.txt is not here";
    text = read_file(shared_folder() / "data" / "eval.txt");
  }

  std::string text;
};

TEST_F(StoryTokenizer, EncodesEvalTextAsHuggingFaceDoes) {
  const Tokenizer tokenizer = Tokenizer::load(shared_folder() / "models" / "story-moe");
  const std::vector<std::int32_t> expected = read_ids(shared_folder() / "data" / "eval_tokens.safetensors");
  std::vector<std::int32_t> ids = tokenizer.encode(text, true);
  ASSERT_EQ(expected.size(), 16384u);
  ASSERT_GE(ids.size(), expected.size());
  ids.resize(expected.size());
  EXPECT_EQ(ids, expected);
}

TEST_F(StoryTokenizer, DecodesBackToTheText) {
  const Tokenizer tokenizer = Tokenizer::load(shared_folder() / "models" / "story-moe");
  const std::vector<std::int32_t> ids = tokenizer.encode(text, true);
  EXPECT_EQ(tokenizer.decode(ids, false), text);
  StreamDecoder stream(tokenizer, false);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += stream.push(id);
  streamed += stream.finish();
  EXPECT_EQ(streamed, text);
}

}  // namespace
}  // namespace pergola
