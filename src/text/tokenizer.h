#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"

namespace pergola {

/// Text to token ids and back, as the tokenizer.json of a model folder defines it (the format of Hugging Face's
/// tokenizers library, BPE models). Immutable; safe to use from several threads. Copies share the tables.
class Tokenizer {
 public:
  /// Reads tokenizer.json of `folder`, and tokenizer_config.json where there is one. Throws Error naming file and field
  /// when a file is missing or wrong, or asks for something that is not supported.
  static Tokenizer load(const std::filesystem::path& folder);

  /// The same from the text of a tokenizer.json; `name` stands for the file in errors.
  static Tokenizer from_json(std::string_view json, const std::string& name);

  /// Token ids of `text`. Bytes that are not UTF-8 count as U+FFFD. `add_special_tokens` puts around it what the
  /// tokenizer's post-processor asks for (a beginning-of-sequence token, for example); tokens that are spelled out in
  /// the text are always recognised.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const;

  /// The text of `ids`, valid UTF-8 always. Ids that have no token give nothing; `skip_special` leaves out tokens that
  /// are marked special.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  /// One more than the largest id that has a token. A model's vocabulary may be padded beyond it.
  std::int32_t size() const;
  /// Whether there is a token with this id.
  bool has_token(std::int32_t id) const;
  /// The token's piece as the file spells it (in the byte alphabet, say); nothing when there is none.
  std::optional<std::string_view> piece_of(std::int32_t id) const;
  /// The id of an added token's content or of a piece.
  std::optional<std::int32_t> id_of(std::string_view piece) const;

  const std::vector<AddedToken>& added_tokens() const;
  bool is_special(std::int32_t id) const;

  /// The "bos_token" and "eos_token" of tokenizer_config.json.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

/// Decodes tokens one by one as they are generated. What it returns is valid UTF-8: the bytes of a character that is
/// not complete yet are held back.
class StreamDecoder {
 public:
  /// `context` are the tokens before, so that the first token is decoded as their continuation (a leading space stays);
  /// their text is not returned.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special, std::span<const std::int32_t> context = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// Text that is complete with this token, maybe none. Valid until the next call.
  std::string_view push(std::int32_t id);
  /// The end: what was held back, with U+FFFD for a character that was cut off.
  std::string_view finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pergola
