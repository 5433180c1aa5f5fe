#include "base/error.h"

namespace pergola {

std::string Error::compose(const std::string& message, const Where& where) {
  std::string place;
  const auto add = [&](const std::string& text) {
    if (!place.empty()) place += ", ";
    place += text;
  };
  if (!where.file.empty()) add(where.file);
  if (!where.tensor.empty()) add("tensor " + where.tensor);
  if (!where.field.empty()) add("field " + where.field);
  if (where.offset) add(fmt::format("byte {}", *where.offset));
  return place.empty() ? message : place + ": " + message;
}

}  // namespace pergola
