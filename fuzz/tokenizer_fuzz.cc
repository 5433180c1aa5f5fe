// Hostile tokenizer.json, and hostile text for a tokenizer that loads: the input is a tokenizer.json, a zero byte, and
// a text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace pergola;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, true);
  for (const std::int32_t id : ids) require(id >= 0);
  require(is_valid_utf8(tokenizer.decode(ids, false)));
  StreamDecoder stream(tokenizer, true);
  for (const std::int32_t id : ids) require(is_valid_utf8(stream.push(id)));
  require(is_valid_utf8(stream.finish()));
  // Ids that no text makes: the text's bytes.
  std::vector<std::int32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  require(is_valid_utf8(tokenizer.decode(bytes, true)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string_view text = zero == std::string_view::npos ? "a b\r\n 12\xC3\xA9" : input.substr(zero + 1);
  try {
    check(Tokenizer::from_json(input.substr(0, zero), "tokenizer.json"), text);
  } catch (const Error&) {
  }
  return 0;
}
