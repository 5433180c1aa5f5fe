#include "server/access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "server/api_error.h"

namespace pergola {
namespace {

std::string digest(std::string_view text) {
  std::string result(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(result.data()), &size, EVP_sha256(),
                 nullptr) != 1) {
    throw ApiError(500, "cannot check the key");
  }
  result.resize(size);
  return result;
}

/// "Bearer KEY" of OpenAI's clients, x-api-key of Anthropic's.
std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view value = request.header("authorization");
  if (value.size() > kBearer.size()) {
    std::string scheme(value.substr(0, kBearer.size()));
    for (char& c : scheme) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (scheme == kBearer) return value.substr(kBearer.size());
  }
  return request.header("x-api-key");
}

/// A Host header without its port.
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_local(std::string_view host) {
  const std::string_view name = host_name(host);
  return name == "localhost" || name == "[::1]" || name.starts_with("127.");
}

}  // namespace

AccessRules::AccessRules(std::vector<std::string> keys, bool local_only) : local_only_(local_only) {
  for (const std::string& key : keys) digests_.push_back(digest(key));
}

void AccessRules::check(const HttpRequest& request, bool public_route) const {
  const std::string_view host = request.header("host");
  if (local_only_ && !host.empty() && !is_local(host)) {
    throw ApiError(403, "the Host header names another machine than this one");
  }
  // Browsers say which page a call comes from; only our own may.
  if (const std::string_view origin = request.header("origin"); !origin.empty()) {
    const std::size_t slashes = origin.find("://");
    if (slashes == std::string_view::npos || origin.substr(slashes + 3) != host) {
      throw ApiError(403, "calls from other web pages are not allowed");
    }
  }
  if (public_route || digests_.empty()) return;
  const std::string given = digest(key_of(request));
  int matches = 0;
  for (const std::string& key : digests_) {
    matches |= CRYPTO_memcmp(key.data(), given.data(), key.size()) == 0 ? 1 : 0;
  }
  if (matches == 0) throw ApiError(401, "this server needs an API key, and the request has none that fits");
}

}  // namespace pergola
