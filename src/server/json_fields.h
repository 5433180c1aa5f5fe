#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace pergola {

/// The members of one JSON object in a request, read by name and checked. Null counts as left out. Whatever is wrong is
/// an ApiError of status 400 that names the member.
class JsonFields {
 public:
  using Json = nlohmann::ordered_json;

  /// `path` is what comes before a member's name in messages: empty, or such as "messages[2].". Refuses what is not an
  /// object. `object` outlives this.
  JsonFields(const Json& object, std::string path);

  /// The member, or null when it is left out.
  const Json* find(std::string_view name);
  const Json& require(std::string_view name);

  std::optional<bool> boolean(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  std::optional<double> number(std::string_view name, double least, double most);
  std::optional<std::string> text(std::string_view name);
  std::string required_text(std::string_view name);
  /// An array of at most `most` elements.
  const Json* array(std::string_view name, std::size_t most);
  const Json* object(std::string_view name);

  /// Members that have no effect here and do no harm.
  void ignore(std::initializer_list<std::string_view> names);

  /// Refuses the first member that nobody asked for. Null is left out here too: clients send back what they got.
  void refuse_others() const;

  /// Full name of a member, for messages.
  std::string name_of(std::string_view name) const { return path_ + std::string(name); }

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

/// "a string", "an object": what a value is, for messages.
std::string_view kind_of(const nlohmann::ordered_json& value);

/// JSON text of a value. Strings that are not UTF-8 get replacement characters.
std::string to_text(const nlohmann::ordered_json& value);

}  // namespace pergola
