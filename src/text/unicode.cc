#include "text/unicode.h"

#include <utf8proc.h>

#include "text/unicode_additions.h"
#include "text/utf8.h"

namespace pergola {
namespace {

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(older_equivalent(c)));
}

bool in(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

// Other_Alphabetic outside category M: circled and squared Latin letters, which are symbols by category.
bool is_enclosed_letter(char32_t c) {
  return in(c, 0x24B6, 0x24E9) || in(c, 0x1F130, 0x1F149) || in(c, 0x1F150, 0x1F169) || in(c, 0x1F170, 0x1F189);
}

}  // namespace

bool is_white_space(char32_t c) {
  return in(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || in(c, 0x2000, 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return in(c, '0', '9');
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return in(c, '!', '/') || in(c, ':', '@') || in(c, '[', '`') || in(c, '{', '~');
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;  // L, M, Nd, Nl
  return category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || is_enclosed_letter(c);
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one character whose lower case is two
    out += "i\xCC\x87";
    return;
  }
  utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace pergola
