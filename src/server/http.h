#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pergola {

/// One HTTP request, as far as handlers care.
struct HttpRequest {
  std::string method;
  std::string path;                            ///< of the target, without the query
  std::map<std::string, std::string> headers;  ///< names in lower case; of equal names the last
  std::string body;

  /// A header's value, empty if it is not there.
  std::string_view header(const std::string& lower_case_name) const {
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
  }
};

/// Status and headers of a reply, and its body unless that follows in pieces.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

}  // namespace pergola
