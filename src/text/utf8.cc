#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace pergola {
namespace {

// Range that the second byte must be in, and the number of bytes, by lead byte (Unicode table 3-7).
struct LeadRule {
  std::size_t length;
  unsigned char low;
  unsigned char high;
};

LeadRule rule_of(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

std::size_t ascii_run(std::string_view text, std::size_t at) {
  const std::size_t start = at;
  while (at + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at - start;
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(at) < 0x80) return {Utf8Step::Kind::valid, 1};
  const LeadRule rule = rule_of(byte(at));
  if (rule.length == 0) return {Utf8Step::Kind::invalid, 1};
  for (std::size_t i = 1; i < rule.length; ++i) {
    if (at + i == text.size()) return {Utf8Step::Kind::incomplete, i};
    const unsigned char low = i == 1 ? rule.low : 0x80;
    const unsigned char high = i == 1 ? rule.high : 0xBF;
    if (byte(at + i) < low || byte(at + i) > high) return {Utf8Step::Kind::invalid, i};
  }
  return {Utf8Step::Kind::valid, rule.length};
}

char32_t utf8_next(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(at);
  const std::size_t length = utf8_length(text[at]);
  char32_t code_point = length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte(at + i) & 0x3Fu);
  at += length;
  return code_point;
}

std::size_t utf8_previous(std::string_view text, std::size_t end) {
  --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  return end;
}

void utf8_append(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  std::size_t at = ascii_run(text, 0);
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Utf8Step::Kind::valid) return false;
    at += step.length;
    at += ascii_run(text, at);
  }
  return true;
}

void append_lossy_utf8(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    out += step.kind == Utf8Step::Kind::valid ? text.substr(at, step.length) : replacement_character;
    at += step.length;
  }
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::size_t end = text.size();
  if (end > longest) {
    end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  }
  return '"' + std::string(text.substr(0, end)) + (end < text.size() ? "..." : "") + '"';
}

}  // namespace pergola
