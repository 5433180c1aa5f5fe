#include "text/tokenizer.h"

#include <algorithm>

#include "format/json.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"
#include "text/word_cache.h"

namespace pergola {

struct Tokenizer::Parts {
  Bpe model;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null: all of the text is one word
  AddedTokens added;
  SpecialFrame frame;
  Decoder decoder;
  std::int32_t size = 0;
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;

  explicit Parts(const JsonNode& root) : model(root.require("model")) {
    if (root.has("normalizer")) normalizer = read_normalizer(root.require("normalizer"));
    if (root.has("pre_tokenizer")) pre_tokenizer = read_pre_tokenizer(root.require("pre_tokenizer"));
    if (root.has("added_tokens"))
      added = AddedTokens(root.require("added_tokens"), model.vocabulary(), normalizer.get());
    if (root.has("post_processor")) frame = read_post_processor(root.require("post_processor"));
    if (root.has("decoder")) decoder = Decoder(root.require("decoder"));
    size = model.vocabulary().id_limit();
    for (const AddedToken& token : added.tokens()) size = std::max(size, token.id + 1);
  }

  std::optional<std::string_view> piece_of(std::int32_t id) const {
    if (const AddedToken* token = added.find(id)) return token->content;
    return model.vocabulary().piece_of(id);
  }

  // The piece to decode, or nothing when the id has none or is to be left out.
  std::optional<std::string_view> decodable(std::int32_t id, bool skip_special) const {
    const AddedToken* token = added.find(id);
    if (token == nullptr) return model.vocabulary().piece_of(id);
    if (token->special && skip_special) return std::nullopt;
    return token->spelling;
  }
};

namespace {

// A token of tokenizer_config.json: a string, or an object with the flags of an added token.
std::optional<std::int32_t> read_token_name(const JsonNode& root, const char* key, const Tokenizer& tokenizer) {
  if (!root.has(key)) return std::nullopt;
  const JsonNode node = root.require(key);
  const std::string& content = node.is_object() ? node.require("content").string() : node.string();
  const auto id = tokenizer.id_of(content);
  if (!id) fail(node.where(), "token {} is not in tokenizer.json", in_quotes(content));
  return id;
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  return Tokenizer(std::make_shared<Parts>(JsonNode(document, name)));
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  const nlohmann::json document = read_json_file(path);
  const auto parts = std::make_shared<Parts>(JsonNode(document, path.string()));
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config_path)) {
    const nlohmann::json config = read_json_file(config_path);
    const JsonNode root(config, config_path.string());
    parts->bos = read_token_name(root, "bos_token", Tokenizer(parts));
    parts->eos = read_token_name(root, "eos_token", Tokenizer(parts));
  }
  return Tokenizer(parts);
}

std::int32_t Tokenizer::size() const {
  return parts_->size;
}
bool Tokenizer::has_token(std::int32_t id) const {
  return parts_->piece_of(id).has_value();
}
std::optional<std::string_view> Tokenizer::piece_of(std::int32_t id) const {
  return parts_->piece_of(id);
}
const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return parts_->added.tokens();
}
std::optional<std::int32_t> Tokenizer::bos_id() const {
  return parts_->bos;
}
std::optional<std::int32_t> Tokenizer::eos_id() const {
  return parts_->eos;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view piece) const {
  if (const AddedToken* token = parts_->added.find(piece)) return token->id;
  return parts_->model.vocabulary().id_of(piece);
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* token = parts_->added.find(id);
  return token != nullptr && token->special;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  Decoder::Run run(parts_->decoder, false);
  for (const std::int32_t id : ids) {
    if (const auto piece = parts_->decodable(id, skip_special)) run.push(*piece);
  }
  run.finish();
  return std::move(run.text());
}

namespace {

// One call of encode: work space and what it has found so far.
class Encoding {
 public:
  Encoding(const Bpe& model, const Normalizer* normalizer, const PreTokenizer* pre_tokenizer, const AddedTokens& added)
      : model_(model), normalizer_(normalizer), pre_tokenizer_(pre_tokenizer), added_(added) {}

  void text(std::string_view text) {
    std::vector<AddedTokens::Part> parts;
    added_.split_raw(text, parts);
    for (const AddedTokens::Part& part : parts) {
      if (part.token >= 0) {
        ids.push_back(part.token);
      } else {
        raw_part(text.substr(part.begin, part.end - part.begin), part.begin == 0);
      }
    }
  }

  std::vector<std::int32_t> ids;

 private:
  void raw_part(std::string_view text, bool at_origin) {
    std::string normalized(text);
    if (normalizer_ != nullptr) normalizer_->apply(normalized, at_origin);
    std::vector<AddedTokens::Part> parts;
    added_.split_normalized(normalized, parts);
    for (const AddedTokens::Part& part : parts) {
      if (part.token >= 0) {
        ids.push_back(part.token);
      } else {
        words(normalized.substr(part.begin, part.end - part.begin), at_origin && part.begin == 0);
      }
    }
  }

  void words(std::string text, bool at_origin) {
    const std::size_t size = text.size();
    Pieces pieces = {std::move(text), {{0, size, at_origin}}};
    if (pre_tokenizer_ != nullptr) pre_tokenizer_->apply(pieces);
    for (const Pieces::Piece& piece : pieces.list) word(pieces.view(piece));
  }

  void word(std::string_view word) {
    if (word.size() > WordCache::longest_word) return model_.encode(word, ids, scratch_);
    const WordCache::Place place = cache_.locate(word);
    if (place.found) {
      const auto known = cache_.ids_at(place);
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = ids.size();
    model_.encode(word, ids, scratch_);
    cache_.insert(place, word, std::span(ids).subspan(before));
  }

  const Bpe& model_;
  const Normalizer* normalizer_;
  const PreTokenizer* pre_tokenizer_;
  const AddedTokens& added_;
  WordCache cache_;
  Bpe::Scratch scratch_;
};

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  Encoding encoding(parts_->model, parts_->normalizer.get(), parts_->pre_tokenizer.get(), parts_->added);
  if (add_special_tokens) encoding.ids = parts_->frame.before;
  if (is_valid_utf8(text)) {
    encoding.text(text);
  } else {
    std::string valid;
    append_lossy_utf8(valid, text);
    encoding.text(valid);
  }
  if (add_special_tokens)
    encoding.ids.insert(encoding.ids.end(), parts_->frame.after.begin(), parts_->frame.after.end());
  return std::move(encoding.ids);
}

struct StreamDecoder::State {
  std::shared_ptr<const Tokenizer::Parts> parts;
  bool skip_special;
  Decoder::Run run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special, std::span<const std::int32_t> context)
    : state_(new State{tokenizer.parts_, skip_special, Decoder::Run(tokenizer.parts_->decoder, true)}) {
  for (const std::int32_t id : context) push(id);
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string_view StreamDecoder::push(std::int32_t id) {
  state_->run.text().clear();
  if (const auto piece = state_->parts->decodable(id, state_->skip_special)) state_->run.push(*piece);
  return state_->run.text();
}

std::string_view StreamDecoder::finish() {
  state_->run.text().clear();
  state_->run.finish();
  return state_->run.text();
}

}  // namespace pergola
