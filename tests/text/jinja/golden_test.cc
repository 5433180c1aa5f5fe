// Compares with what Jinja2 makes of the same templates (tools/make_chat_fixtures.py), byte for byte.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "text/jinja/template.h"

namespace pergola::jinja {
namespace {

using nlohmann::ordered_json;

std::string read(const std::string& name) {
  std::ifstream file(std::string(PERGOLA_SOURCE_DIR) + "/tests/data/chat/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Golden : public ::testing::Test {
 protected:
  Golden() : golden_(ordered_json::parse(read("golden.json"))) {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }

  std::string render(const std::string& source, const ordered_json& variables) const {
    const auto now = std::chrono::system_clock::from_time_t(golden_["now"].get<std::time_t>());
    return Template(source, "test").render(variables, {}, now);
  }

  void expect(const std::string& source, const ordered_json& variables, const ordered_json& wanted) const {
    if (wanted.contains("expected")) {
      try {
        EXPECT_EQ(render(source, variables), wanted["expected"].get<std::string>());
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    } else {
      EXPECT_THROW(render(source, variables), Error) << wanted["error"];
    }
  }

  ordered_json golden_;
};

TEST_F(Golden, ChatTemplates) {
  ASSERT_GT(golden_["cases"].size(), 90u);
  for (const auto& entry : golden_["cases"]) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    expect(read(entry["file"].get<std::string>()), entry["variables"], entry);
  }
}

TEST_F(Golden, Constructs) {
  ASSERT_GT(golden_["snippets"].size(), 120u);
  for (const auto& entry : golden_["snippets"]) {
    const auto source = entry["source"].get<std::string>();
    SCOPED_TRACE(source);
    expect(source, golden_["data"], entry);
  }
}

TEST_F(Golden, MessagesOfRaisedExceptionsAreKept) {
  for (const auto& entry : golden_["cases"]) {
    if (!entry.contains("error")) continue;
    try {
      render(read(entry["file"].get<std::string>()), entry["variables"]);
    } catch (const Error& error) {
      const auto wanted = entry["error"].get<std::string>();
      if (wanted.ends_with("Error")) continue;  // Python's own, named by type
      if (wanted.find("has no") != std::string::npos || wanted.find("is undefined") != std::string::npos) continue;
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what() << " / " << wanted;
    }
  }
}

}  // namespace
}  // namespace pergola::jinja
