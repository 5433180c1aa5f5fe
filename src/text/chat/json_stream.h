#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pergola {

/// Passes one JSON value on while it is written, in pieces that can always be closed to valid JSON: what may turn out
/// to be incomplete (a key without its value, half an escape) is held back. Mends what models get wrong: raw control
/// characters in strings, unknown escapes, lone surrogates, Python's True, False and None.
class JsonStream {
 public:
  enum class Status : std::uint8_t { more, done, invalid };

  /// Takes bytes of `text` until the value ends or is no JSON; returns how many it took.
  std::size_t push(std::string_view text);
  Status status() const { return status_; }
  /// Ends the value here. Nothing more is taken.
  void close();

  /// What was passed on since the last call.
  std::string take();

 private:
  enum class State : std::uint8_t { value, first_item, first_key, key, colon, string, escape, scalar, after };

  bool take_byte(char c);
  bool begin_value(char c);
  bool open(char bracket);
  void end_value();
  void end_string();
  void unicode_escape(const std::string& text);
  void drop_lone_surrogate();
  void string_byte(char c);
  void escape_byte(char c);
  void end_scalar(bool cut_off);
  void emit(std::string_view text);

  static constexpr std::size_t kMaxDepth = 64;
  static constexpr std::size_t kMaxScalar = 64;

  Status status_ = Status::more;
  State state_ = State::value;
  std::vector<char> open_;  // brackets that wait for their end
  std::string out_;
  std::string held_;            // white space, a comma, a key: passed on with the value that follows
  std::string pending_;         // an escape or a scalar
  std::string high_surrogate_;  // an escape that waits for its other half
  bool in_key_ = false;         // the string is a key: it is held back as a whole
};

}  // namespace pergola
