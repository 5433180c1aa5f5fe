#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/operations.h"
#include "text/jinja/template.h"

namespace pergola::jinja {

/// Variables of one block; what is not here is looked for outside.
class Scope {
 public:
  explicit Scope(Scope* outer) : outer_(outer) {}

  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);

 private:
  Scope* outer_;
  std::vector<std::pair<std::string, Value>> variables_;
};

/// A macro with the variables that it sees.
struct BoundMacro {
  const Macro* macro;
  Scope* scope;
};

/// Runs one template once.
class Interpreter {
 public:
  Interpreter(const std::string& name, const Limits& limits, std::chrono::system_clock::time_point now);

  std::string run(const Block& block, const nlohmann::ordered_json& variables);

 private:
  enum class Flow : std::uint8_t { next, leave_loop, next_round };

  class Depth;

  // Statements
  Flow execute(const Block& block, Scope& scope);
  Flow execute(const Statement& statement, Scope& scope);
  Flow run_loop(const Statement& statement, Scope& scope);
  void assign(const Expression& target, const Value& value, Scope& scope);
  Value bind(const Macro& macro, Scope& scope);
  std::string captured(const Block& block, Scope& scope);
  Scope& new_scope(Scope& outer);
  void write(std::string_view text);

  // Expressions
  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_name(const Expression& node, Scope& scope);
  Value evaluate_dict(const Expression& node, Scope& scope);
  Value evaluate_slice(const Expression& node, Scope& scope);
  Value evaluate_call(const Expression& node, Scope& scope, const Value* caller);
  Value evaluate_compare(const Expression& node, Scope& scope);
  Value evaluate_concatenation(const Expression& node, Scope& scope);
  Value evaluate_logical(const Expression& node, Scope& scope);
  Items evaluate_all(const Expression& node, Scope& scope);
  Arguments arguments(const Expression& node, std::size_t from, Scope& scope);
  Value call(const Value& callee, Arguments arguments, const Value* caller);
  Value call_macro(const BoundMacro& bound, Arguments arguments, const Value* caller);
  Value call_global(const std::string& name, const Arguments& arguments);
  Value make_namespace(const Arguments& arguments);
  Value range(const Arguments& arguments);
  Value strftime_now(const Arguments& arguments) const;

  const std::string& name_;
  const Limits limits_;
  std::chrono::system_clock::time_point now_;
  Budget budget_;
  int depth_ = 0;
  int line_ = 0;
  std::string* out_ = nullptr;
  std::size_t written_ = 0;
  Value block_text_;  ///< what a filter without operand is applied to
  // Values may refer to these, so they live as long as the interpreter.
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<BoundMacro>> macros_;
};

}  // namespace pergola::jinja
