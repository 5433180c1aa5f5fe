#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace pergola {
namespace {

constexpr char32_t alphabet_limit = 256 + 68;

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, alphabet_limit> bytes;

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      const char32_t code_point = printable ? static_cast<char32_t>(byte) : next++;
      utf8_append(characters[static_cast<std::size_t>(byte)], code_point);
      bytes[code_point] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_level_character(unsigned char byte) {
  return alphabet().characters[byte];
}

int byte_level_byte(char32_t code_point) {
  return code_point < alphabet_limit ? alphabet().bytes[code_point] : -1;
}

void append_byte_level(std::string& out, std::string_view bytes) {
  const Alphabet& table = alphabet();
  for (const char c : bytes) out += table.characters[static_cast<unsigned char>(c)];
}

}  // namespace pergola
