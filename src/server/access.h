#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace pergola {

/// Who may call. Without keys anyone who reaches the port may.
class AccessRules {
 public:
  /// `keys`: any one opens. `local_only`: the server listens on a loopback address, so a Host header that names
  /// another machine comes from a web page whose name was pointed here.
  AccessRules(std::vector<std::string> keys, bool local_only);

  /// Throws ApiError (401, 403) unless the request may be served. `public_route`: needs no key.
  void check(const HttpRequest& request, bool public_route) const;

 private:
  std::vector<std::string> digests_;  ///< SHA-256 of the keys: of one length, so that comparing tells nothing
  bool local_only_;
};

}  // namespace pergola
