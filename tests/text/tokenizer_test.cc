#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "fixtures.h"
#include "text/utf8.h"

namespace pergola {
namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer fixture(const std::string& name) {
  return Tokenizer::load(tokenizer_fixtures() / name);
}

TEST(Tokenizer, InvalidBytesCountAsReplacementCharacters) {
  for (const char* name : {"qwen3.5", "gpt2", "llama2", "metaspace"}) {
    const Tokenizer tokenizer = fixture(name);
    EXPECT_EQ(tokenizer.encode("a\xFF b\xE4\xBD", false), tokenizer.encode("a\uFFFD b\uFFFD", false));
    EXPECT_EQ(tokenizer.encode("\xF0\x9F", false), tokenizer.encode("\uFFFD", false));
  }
  const Tokenizer bytes = fixture("qwen3.5");
  EXPECT_EQ(bytes.decode(bytes.encode("a\xFF", false), false), "a\uFFFD");
}

TEST(Tokenizer, ZeroBytesAreCharacters) {
  const Tokenizer tokenizer = fixture("qwen3.5");
  const std::string text("a\0b\0", 4);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false), false), text);
}

TEST(Tokenizer, Vocabulary) {
  const Tokenizer tokenizer = fixture("qwen3.5");
  EXPECT_EQ(tokenizer.size(), 526);
  EXPECT_EQ(tokenizer.added_tokens().size(), 6u);
  const std::int32_t end = tokenizer.id_of("<|endoftext|>").value();
  EXPECT_EQ(end, 520);
  EXPECT_EQ(tokenizer.piece_of(end), "<|endoftext|>");
  EXPECT_TRUE(tokenizer.is_special(end));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.id_of("<think>").value()));
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_EQ(tokenizer.id_of("Ġthe"), tokenizer.encode(" the", false).at(0));
  EXPECT_EQ(tokenizer.id_of("no such piece"), std::nullopt);
  for (const std::int32_t id : {-1, 526, 1 << 30}) {
    EXPECT_FALSE(tokenizer.has_token(id));
    EXPECT_EQ(tokenizer.decode(Ids{id, 520}, false), "<|endoftext|>");
  }
}

TEST(Tokenizer, HolesInTheVocabularyHaveNoToken) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}})", "tokenizer.json");
  EXPECT_EQ(tokenizer.size(), 8);
  EXPECT_TRUE(tokenizer.has_token(7));
  EXPECT_FALSE(tokenizer.has_token(3));
  EXPECT_EQ(tokenizer.decode(Ids{0, 3, 7}, false), "a b");
}

TEST(Tokenizer, LongTextsTakeLinearTime) {
  // Each of these has made a tokenizer quadratic: one word, spaces that lead nowhere, marks without an end, tokens that
  // eat spaces.
  const std::size_t size = 300'000;
  for (const char* name : {"qwen3.5", "o200k", "han-apart", "llama2", "odd-tokens"}) {
    const Tokenizer tokenizer = fixture(name);
    for (const std::string unit : {" ", "a", "A", "\n", "!", "7", "\u0301", "你", "ไ", " \n", "<mask> "}) {
      std::string text;
      while (text.size() < size) text += unit;
      EXPECT_FALSE(tokenizer.encode(text + "x", false).empty());
    }
  }
}

TEST(Tokenizer, ThreadsShareIt) {
  const Tokenizer tokenizer = fixture("qwen3.5");
  const nlohmann::json golden = read_fixture("qwen3.5/golden.json");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const auto& one : golden["encode"]) {
        EXPECT_EQ(tokenizer.encode(one["text"].get_ref<const std::string&>(), false), one["ids"].get<Ids>());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StreamDecoder, HoldsBackHalfCharacters) {
  const Tokenizer tokenizer = fixture("qwen3.5");
  const Ids ids = tokenizer.encode("🎉", false);
  ASSERT_EQ(ids.size(), 4u);  // one a byte: the little vocabulary knows no emoji
  StreamDecoder stream(tokenizer, false);
  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.push(ids[1]), "");
  EXPECT_EQ(stream.push(ids[2]), "");
  EXPECT_EQ(stream.push(ids[3]), "🎉");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, HalfACharacterAtTheEndIsReplaced) {
  for (const char* name : {"qwen3.5", "llama2"}) {
    const Tokenizer tokenizer = fixture(name);
    const Ids ids = tokenizer.encode("a🎉", false);
    StreamDecoder stream(tokenizer, false);
    std::string text;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) text += stream.push(ids[i]);
    EXPECT_EQ(text, "a");
    EXPECT_EQ(stream.finish(), "\uFFFD");
  }
}

TEST(StreamDecoder, ATextTokenEndsABrokenCharacter) {
  const Tokenizer tokenizer = fixture("qwen3.5");
  const Ids emoji = tokenizer.encode("🎉", false);
  StreamDecoder stream(tokenizer, false);
  stream.push(emoji[0]);
  stream.push(emoji[1]);
  EXPECT_EQ(stream.push(tokenizer.id_of("a").value()), "\uFFFDa");
}

TEST(StreamDecoder, BrokenByteRunsLoseOnlyTheBrokenBytes) {
  const Tokenizer tokenizer = fixture("llama2");
  const auto byte = [&](const char* piece) { return tokenizer.id_of(piece).value(); };
  // 你 in bytes, then half of another character.
  const Ids ids = {byte("<0xE4>"), byte("<0xBD>"), byte("<0xA0>"), byte("<0xE5>"), tokenizer.id_of("a").value()};
  EXPECT_EQ(tokenizer.decode(ids, false), "\uFFFD\uFFFD\uFFFD\uFFFDa");  // as Hugging Face's library decodes the whole
  StreamDecoder stream(tokenizer, false);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text, "你\uFFFDa");
}

TEST(StreamDecoder, ContinuesAPromptWithItsSpace) {
  const Tokenizer tokenizer = fixture("llama2");
  const Ids prompt = tokenizer.encode("the cat", true);
  const Ids more = tokenizer.encode("the", false);  // "▁the"
  ASSERT_EQ(more.size(), 1u);
  StreamDecoder alone(tokenizer, true);
  EXPECT_EQ(alone.push(more[0]), "the");
  StreamDecoder continued(tokenizer, true, prompt);
  EXPECT_EQ(continued.push(more[0]), " the");
}

TEST(StreamDecoder, SkipsSpecialTokens) {
  const Tokenizer tokenizer = fixture("qwen3.5");
  StreamDecoder stream(tokenizer, true);
  EXPECT_EQ(stream.push(tokenizer.id_of("<|endoftext|>").value()), "");
  EXPECT_EQ(stream.push(tokenizer.id_of("<think>").value()), "<think>");
}

}  // namespace
}  // namespace pergola
