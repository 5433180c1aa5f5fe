#include "server/access.h"

#include <gtest/gtest.h>

#include "server/api_error.h"

namespace pergola {
namespace {

int status_of(const AccessRules& rules, const std::map<std::string, std::string>& headers, bool public_route = false) {
  try {
    rules.check({.method = "GET", .path = "/", .headers = headers}, public_route);
    return 200;
  } catch (const ApiError& error) {
    return error.status();
  }
}

TEST(AccessRules, WithoutKeysEveryoneMayCall) {
  EXPECT_EQ(status_of(AccessRules({}, true), {}), 200);
}

TEST(AccessRules, AnyOfTheKeysOpens) {
  const AccessRules rules({"one", "two"}, true);
  EXPECT_EQ(status_of(rules, {}), 401);
  EXPECT_EQ(status_of(rules, {}, true), 200);
  EXPECT_EQ(status_of(rules, {{"authorization", "Bearer one"}}), 200);
  EXPECT_EQ(status_of(rules, {{"authorization", "bearer two"}}), 200);
  EXPECT_EQ(status_of(rules, {{"x-api-key", "two"}}), 200);
  EXPECT_EQ(status_of(rules, {{"authorization", "Bearer on"}}), 401);
  EXPECT_EQ(status_of(rules, {{"authorization", "Bearer onee"}}), 401);
  EXPECT_EQ(status_of(rules, {{"authorization", "Basic one"}}), 401);
  EXPECT_EQ(status_of(rules, {{"authorization", "one"}}), 401);
  EXPECT_EQ(status_of(rules, {{"authorization", ""}}), 401);
}

TEST(AccessRules, NamesPointedAtThisMachineAreRefused) {
  const AccessRules local({}, true);
  EXPECT_EQ(status_of(local, {{"host", "localhost:8080"}}), 200);
  EXPECT_EQ(status_of(local, {{"host", "127.0.0.1:8080"}}), 200);
  EXPECT_EQ(status_of(local, {{"host", "[::1]:8080"}}), 200);
  EXPECT_EQ(status_of(local, {{"host", "evil.example:8080"}}), 403);
  EXPECT_EQ(status_of(AccessRules({}, false), {{"host", "my.server:8080"}}), 200);
}

TEST(AccessRules, OtherWebPagesAreRefused) {
  const AccessRules rules({}, true);
  EXPECT_EQ(status_of(rules, {{"host", "localhost:8080"}, {"origin", "http://localhost:8080"}}), 200);
  EXPECT_EQ(status_of(rules, {{"host", "localhost:8080"}, {"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(status_of(rules, {{"host", "localhost:8080"}, {"origin", "null"}}), 403);
}

}  // namespace
}  // namespace pergola
