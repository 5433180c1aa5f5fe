#include "text/jinja/template.h"

#include <array>
#include <ctime>

#include "base/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace pergola::jinja {

struct Template::Program {
  std::string name;
  Block block;
};

Template::Template(std::string_view source, std::string name)
    : program_(new Program{.name = name, .block = parse(source, name)}) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(const nlohmann::ordered_json& variables, const Limits& limits,
                             std::optional<std::chrono::system_clock::time_point> now) const {
  Interpreter interpreter(program_->name, limits, now.value_or(std::chrono::system_clock::now()));
  return interpreter.run(program_->block, variables);
}

}  // namespace pergola::jinja
