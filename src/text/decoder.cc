#include "text/decoder.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"
#include "text/utf8_assembler.h"

namespace pergola {
namespace {

// The end of every chain: collects the text.
class Collect : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> fresh() const override { return std::make_unique<Collect>(); }
  void push(std::string_view piece) override { text += piece; }

  std::string text;
};

class JoinWithSpaces : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> fresh() const override { return std::make_unique<JoinWithSpaces>(); }

  void push(std::string_view piece) override {
    if (any_) next_->push(" ");
    any_ = true;
    next_->push(piece);
  }

 private:
  bool any_ = false;
};

// Characters of the byte alphabet back to bytes, bytes to UTF-8. A piece with any other character stands for itself.
class ByteLevelDecoder : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> fresh() const override { return std::make_unique<ByteLevelDecoder>(); }
  bool fuses() const override { return true; }

  void push(std::string_view piece) override {
    bytes_.clear();
    for (std::size_t at = 0; at < piece.size();) {
      const int byte = byte_level_byte(utf8_next(piece, at));
      if (byte < 0) {
        bytes_ = piece;
        break;
      }
      bytes_ += static_cast<char>(byte);
    }
    pass_on([&] { assembler_.push(bytes_, text_); });
  }

  void finish() override {
    pass_on([&] { assembler_.finish(text_); });
  }

 private:
  template <typename Fill>
  void pass_on(Fill fill) {
    text_.clear();
    fill();
    if (!text_.empty()) next_->push(text_);
  }

  std::string bytes_;
  std::string text_;
  Utf8Assembler assembler_;
};

// Runs of pieces "<0xNN>" to the text that their bytes spell. A run that is not UTF-8 becomes one U+FFFD a byte; a
// stream cannot wait for the end of a run, so there only the bytes that are not part of a character become U+FFFD.
class ByteFallback : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> fresh() const override { return std::make_unique<ByteFallback>(); }
  void set_streaming() override { streaming_ = true; }

  void push(std::string_view piece) override {
    const int byte = byte_of(piece);
    if (byte < 0) {
      finish();
      next_->push(piece);
      return;
    }
    run_ += static_cast<char>(byte);
    if (!streaming_) return;
    text_.clear();
    assembler_.push(run_, text_);
    run_.clear();
    if (!text_.empty()) next_->push(text_);
  }

  void finish() override {
    text_.clear();
    if (streaming_) {
      assembler_.finish(text_);
    } else if (is_valid_utf8(run_)) {
      text_ = run_;
    } else {
      for (std::size_t i = 0; i < run_.size(); ++i) text_ += replacement_character;
    }
    run_.clear();
    if (!text_.empty()) next_->push(text_);
  }

 private:
  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  static int byte_of(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    const int high = hex_digit(piece[3]);
    const int low = hex_digit(piece[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }

  bool streaming_ = false;
  std::string run_;
  std::string text_;
  Utf8Assembler assembler_;
};

class Fuse : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> fresh() const override { return std::make_unique<Fuse>(); }
  bool fuses() const override { return true; }
  void push(std::string_view piece) override { next_->push(piece); }
};

class ReplaceDecoder : public DecodeStage {
 public:
  ReplaceDecoder(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<DecodeStage> fresh() const override { return std::make_unique<ReplaceDecoder>(pattern_, content_); }

  void push(std::string_view piece) override {
    text_.clear();
    pattern_.replace_all(piece, content_, text_);
    next_->push(text_);
  }

 private:
  Pattern pattern_;
  std::string content_;
  std::string text_;
};

// Takes up to `start` copies of a character from the start of a piece and up to `stop` from its end. Behind a stage
// that fuses, the piece is all of the text: copies that may turn out to be its end are held back.
class StripDecoder : public DecodeStage {
 public:
  StripDecoder(std::string content, std::size_t start, std::size_t stop, bool fused)
      : content_(std::move(content)), start_(start), stop_(stop), fused_(fused), start_left_(start) {}
  std::unique_ptr<DecodeStage> fresh() const override {
    return std::make_unique<StripDecoder>(content_, start_, stop_, fused_);
  }

  void push(std::string_view piece) override {
    if (!fused_) start_left_ = start_;
    while (start_left_ > 0 && piece.starts_with(content_)) {
      piece.remove_prefix(content_.size());
      --start_left_;
    }
    if (piece.empty() && fused_) return;
    start_left_ = 0;
    text_.clear();
    for (; held_ > 0; --held_) text_ += content_;
    text_ += piece;
    while (held_ < stop_ && std::string_view(text_).ends_with(content_)) {
      text_.resize(text_.size() - content_.size());
      ++held_;
    }
    if (!fused_) held_ = 0;
    next_->push(text_);
  }

 private:
  std::string content_;
  std::size_t start_;
  std::size_t stop_;
  bool fused_;
  std::size_t start_left_;
  std::size_t held_ = 0;
  std::string text_;
};

class MetaspaceDecoder : public DecodeStage {
 public:
  MetaspaceDecoder(std::string replacement, PrependScheme scheme, bool fused)
      : replacement_(std::move(replacement)), scheme_(scheme), fused_(fused) {}
  std::unique_ptr<DecodeStage> fresh() const override {
    return std::make_unique<MetaspaceDecoder>(replacement_, scheme_, fused_);
  }

  void push(std::string_view piece) override {
    const std::string_view space = first_ && scheme_ != PrependScheme::never ? "" : " ";
    first_ = first_ && fused_;
    text_.clear();
    std::size_t done = 0;
    for (std::size_t at = piece.find(replacement_); at != std::string_view::npos; at = piece.find(replacement_, done)) {
      text_ += piece.substr(done, at - done);
      text_ += space;
      done = at + replacement_.size();
    }
    text_ += piece.substr(done);
    next_->push(text_);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool fused_;
  bool first_ = true;
  std::string text_;
};

std::unique_ptr<DecodeStage> read_replace(const JsonNode& node, bool fused) {
  Pattern pattern(node.require("pattern"));
  if (fused && !pattern.is_single_character())
    fail(node.where(), "Replace of more than one character behind Fuse or ByteLevel is not supported");
  return std::make_unique<ReplaceDecoder>(std::move(pattern), node.require("content").string());
}

std::unique_ptr<DecodeStage> read_strip(const JsonNode& node, bool fused) {
  const auto count = [&](const char* key) { return static_cast<std::size_t>(node.require(key).integer(0, 1'000'000)); };
  return std::make_unique<StripDecoder>(read_character(node.require("content")), count("start"), count("stop"), fused);
}

std::unique_ptr<DecodeStage> read_stage(const JsonNode& node, bool fused) {
  const std::string& type = node.require("type").string();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Replace") return read_replace(node, fused);
  if (type == "Strip") return read_strip(node, fused);
  if (type == "Metaspace") {
    return std::make_unique<MetaspaceDecoder>(read_character(node.require("replacement")), read_prepend_scheme(node),
                                              fused);
  }
  if (type == "ByteFallback") {
    if (fused) fail(node.where(), "ByteFallback behind Fuse or ByteLevel is not supported");
    return std::make_unique<ByteFallback>();
  }
  fail(node.require("type").where(), "decoder {} is not supported", in_quotes(type));
}

}  // namespace

Decoder::Decoder() {
  stages_.push_back(std::make_unique<JoinWithSpaces>());
}

Decoder::Decoder(const JsonNode& node) {
  add(node);
}

void Decoder::add(const JsonNode& node) {
  if (node.require("type").string() == "Sequence") {
    for (const JsonNode& part : node.require("decoders").items()) add(part);
    return;
  }
  stages_.push_back(read_stage(node, fused_));
  fused_ = fused_ || stages_.back()->fuses();
}

Decoder::Run::Run(const Decoder& decoder, bool streaming) {
  for (const auto& stage : decoder.stages_) {
    stages_.push_back(stage->fresh());
    if (streaming) stages_.back()->set_streaming();
  }
  stages_.push_back(std::make_unique<Collect>());
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->set_next(stages_[i + 1].get());
}

Decoder::Run::~Run() = default;
Decoder::Run::Run(Run&&) noexcept = default;
Decoder::Run& Decoder::Run::operator=(Run&&) noexcept = default;

void Decoder::Run::push(std::string_view piece) {
  stages_.front()->push(piece);
}

void Decoder::Run::finish() {
  for (const auto& stage : stages_) stage->finish();
}

std::string& Decoder::Run::text() {
  return static_cast<Collect&>(*stages_.back()).text;
}

}  // namespace pergola
