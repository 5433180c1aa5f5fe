#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace pergola {
namespace {

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Appends `text` in the normal form that the options of utf8proc ask for.
void append_normalized(std::string& out, std::string_view text, unsigned options) {
  utf8proc_uint8_t* result = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) throw std::bad_alloc();  // the text is valid UTF-8, so memory is all that can be missing
  out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(unsigned options) : options_(options) {}

  void apply(std::string& text, bool&) const override {
    if (is_ascii(text)) return;  // ASCII is in every normal form
    std::string out;
    append_normalized(out, text, options_);
    text = std::move(out);
  }

 private:
  unsigned options_;
};

// NFC changes little of most texts, so it looks only at the stretches that it could change.
class ComposedForm : public Normalizer {
 public:
  void apply(std::string& text, bool&) const override {
    std::string out;
    std::size_t done = 0;       // what is before is in `out`
    std::size_t character = 0;  // start of the last character
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t start = at;
      if (is_inert(utf8_next(text, at))) {
        character = start;
        continue;
      }
      // It may combine with the character before it, and with what follows up to the next one that combines with
      // nothing before it.
      while (at < text.size()) {
        std::size_t next = at;
        if (is_inert(utf8_next(text, next))) break;
        at = next;
      }
      out.append(text, done, character - done);
      append_normalized(out, std::string_view(text).substr(character, at - character),
                        UTF8PROC_STABLE | UTF8PROC_COMPOSE);
      done = character = at;
    }
    if (done == 0) return;
    out.append(text, done);
    text = std::move(out);
  }

 private:
  // Whether the character stays what it is whatever is before it. (Letters below U+0300 combine with marks behind
  // them.)
  static bool is_inert(char32_t c) {
    if (c < 0x300) return true;
    if ((c >= 0x1100 && c < 0x1200) || (c >= 0xAC00 && c < 0xD800)) return false;  // Hangul is composed by arithmetic
    const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
           property->comb_index == UINT16_MAX;
  }
};

class Lowercase : public Normalizer {
 public:
  void apply(std::string& text, bool&) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) append_lower(out, utf8_next(text, at));
    text = std::move(out);
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(std::string& text, bool& at_origin) const override {
    std::size_t begin = 0;
    std::size_t end = text.size();
    while (left_ && begin < end) {
      std::size_t next = begin;
      if (!is_white_space(utf8_next(text, next))) break;
      begin = next;
    }
    while (right_ && end > begin) {
      const std::size_t previous = utf8_previous(text, end);
      std::size_t at = previous;
      if (!is_white_space(utf8_next(text, at))) break;
      end = previous;
    }
    if (begin > 0) at_origin = false;
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_;
  bool right_;
};

class StripAccents : public Normalizer {
 public:
  void apply(std::string& text, bool& at_origin) const override {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t start = at;
      if (!is_mark(utf8_next(text, at))) {
        out.append(text, start, at - start);
      } else if (start == 0) {
        at_origin = false;
      }
    }
    text = std::move(out);
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  void apply(std::string& text, bool&) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(std::string& text, bool& at_origin) const override {
    std::string out;
    out.reserve(text.size());
    pattern_.replace_all(text, content_, out);
    if (content_.empty() && !out.starts_with(text.substr(0, 1))) at_origin = false;
    text = std::move(out);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(std::string& text, bool&) const override {
    std::string out;
    append_byte_level(out, text);
    text = std::move(out);
  }
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}

  void apply(std::string& text, bool& at_origin) const override {
    for (const auto& part : parts_) part->apply(text, at_origin);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonNode& node) {
  const std::string& type = node.require("type").string();
  if (type == "NFC") return std::make_unique<ComposedForm>();
  if (type == "NFD") return std::make_unique<UnicodeForm>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Prepend") return std::make_unique<Prepend>(node.require("prepend").string());
  if (type == "Strip")
    return std::make_unique<Strip>(node.require("strip_left").boolean(), node.require("strip_right").boolean());
  if (type == "Replace")
    return std::make_unique<Replace>(Pattern(node.require("pattern")), node.require("content").string());
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const JsonNode& part : node.require("normalizers").items()) parts.push_back(read_normalizer(part));
    return std::make_unique<NormalizerSequence>(std::move(parts));
  }
  fail(node.require("type").where(), "normalizer {} is not supported", in_quotes(type));
}

}  // namespace pergola
