#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace pergola {

/// Where in a user's input something is wrong. Empty members are left out of the message.
struct Where {
  std::string file;
  std::string tensor;
  std::string field;
  std::optional<std::uint64_t> offset;  ///< bytes from the start of the file
};

/// Something that a user can cause: a bad file, a bad request, too little memory. `what()` is one sentence that names
/// the place. Programmer errors are asserted instead.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Where where = {})
      : std::runtime_error(compose(message, where)), where_(std::move(where)) {}

  const Where& where() const { return where_; }

 private:
  static std::string compose(const std::string& message, const Where& where);

  Where where_;
};

/// Throws an Error whose message is formatted with fmt.
template <typename... Args>
[[noreturn]] void fail(Where where, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), std::move(where));
}

}  // namespace pergola
