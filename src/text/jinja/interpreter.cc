#include "text/jinja/interpreter.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/python_text.h"
#include "text/jinja/tests.h"

namespace pergola::jinja {
namespace {

constexpr std::size_t kScopeUnits = 8;       // of the budget: scopes live until the end
constexpr std::int64_t kMaxRange = 100'000;  // as Jinja2's sandbox

}  // namespace

/// Counts nested evaluation for as long as it lives.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ > interpreter_.limits_.depth) {
      --interpreter_.depth_;
      throw Error("the template is nested too deep");
    }
    interpreter_.budget_.spend(1);
  }
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter& interpreter_;
};

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_) {
    for (const auto& [known, value] : scope->variables_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [known, old] : variables_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const std::string& name, const Limits& limits, std::chrono::system_clock::time_point now)
    : name_(name), limits_(limits), now_(now), budget_(limits.steps) {}

std::string Interpreter::run(const Block& block, const nlohmann::ordered_json& variables) {
  try {
    Scope globals(nullptr);
    for (const char* name : {"namespace", "range", "dict", "raise_exception", "strftime_now"}) {
      globals.set(name, Function{name, nullptr});
    }
    for (const auto& [name, value] : variables.items()) globals.set(name, Value::from_json(value));
    Scope scope(&globals);
    std::string out;
    out_ = &out;
    execute(block, scope);
    return out;
  } catch (const Error& error) {
    throw Error(error.what(), {.file = fmt::format("{}:{}", name_, line_)});
  }
}

// --- statements
// -----------------------------------------------------------------------------------------------------------

void Interpreter::write(std::string_view text) {
  written_ += text.size();
  if (written_ > limits_.output_bytes) throw Error("the template writes too much text");
  budget_.spend_text(text.size());
  *out_ += text;
}

Scope& Interpreter::new_scope(Scope& outer) {
  budget_.spend(kScopeUnits);
  return *scopes_.emplace_back(std::make_unique<Scope>(&outer));
}

std::string Interpreter::captured(const Block& block, Scope& scope) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  execute(block, scope);
  out_ = outer;
  return text;
}

Interpreter::Flow Interpreter::execute(const Block& block, Scope& scope) {
  const Depth depth(*this);
  for (const Statement& statement : block) {
    if (const Flow flow = execute(statement, scope); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, Scope& scope) {
  using Kind = Statement::Kind;
  line_ = statement.line;
  switch (statement.kind) {
    case Kind::text:
      write(statement.text);
      break;
    case Kind::print: {
      const Value value = evaluate(*statement.expression, scope);
      write(value.is_string() ? *value.string() : to_text(value));
      break;
    }
    case Kind::branch:
      return execute(evaluate(*statement.expression, scope).truthy() ? statement.body : statement.otherwise, scope);
    case Kind::loop:
      return run_loop(statement, scope);
    case Kind::assign:
      assign(*statement.target, evaluate(*statement.expression, scope), scope);
      break;
    case Kind::capture: {
      Value text = captured(statement.body, new_scope(scope));
      block_text_ = text;
      if (statement.expression != nullptr) text = evaluate(*statement.expression, scope);
      assign(*statement.target, text, scope);
      break;
    }
    case Kind::macro:
      scope.set(statement.macro->name, bind(*statement.macro, scope));
      break;
    case Kind::call: {
      const Value caller = bind(*statement.macro, scope);
      write(to_text(evaluate_call(*statement.expression, scope, &caller)));
      break;
    }
    case Kind::filter: {
      Value text = captured(statement.body, new_scope(scope));
      block_text_ = std::move(text);
      write(to_text(evaluate(*statement.expression, scope)));
      break;
    }
    case Kind::with: {
      const Items values = evaluate_all(*statement.expression, scope);
      Scope& inner = new_scope(scope);
      for (std::size_t i = 0; i < values.size(); ++i) assign(*statement.target->operands[i], values[i], inner);
      return execute(statement.body, inner);
    }
    case Kind::scope:
      return execute(statement.body, new_scope(scope));
    case Kind::leave_loop:
      return Flow::leave_loop;
    case Kind::next_round:
      return Flow::next_round;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, Scope& scope) {
  const Value iterated = evaluate(*statement.expression, scope);
  Items items = iterate(iterated, budget_);
  if (statement.condition != nullptr) {
    Items kept;
    for (const Value& item : items) {
      Scope& inner = new_scope(scope);
      assign(*statement.target, item, inner);
      if (evaluate(*statement.condition, inner).truthy()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) return execute(statement.otherwise, scope);
  const auto shared = std::make_shared<const Items>(std::move(items));
  std::shared_ptr<const Value> checked;
  for (std::size_t i = 0; i < shared->size(); ++i) {
    Scope& inner = new_scope(scope);
    const auto loop = std::make_shared<const Loop>(Loop{shared, i, checked});
    inner.set("loop", loop);
    assign(*statement.target, (*shared)[i], inner);
    const Flow flow = execute(statement.body, inner);
    checked = loop->last_checked;
    if (flow == Flow::leave_loop) break;
  }
  return Flow::next;
}

void Interpreter::assign(const Expression& target, const Value& value, Scope& scope) {
  if (target.kind == Expression::Kind::name) {
    scope.set(target.name, value);
    return;
  }
  if (target.kind == Expression::Kind::attribute) {
    Namespace* names = evaluate(*target.operands[0], scope).name_space();
    if (names == nullptr) throw Error("cannot assign attribute on non-namespace object");
    names->attributes[target.name] = value;
    return;
  }
  require_defined(value);
  const Items items = iterate(value, budget_);
  if (items.size() != target.operands.size()) {
    fail({}, "{} values cannot be unpacked into {} names", items.size(), target.operands.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i], scope);
}

Value Interpreter::bind(const Macro& macro, Scope& scope) {
  budget_.spend(kScopeUnits);
  return macros_.emplace_back(std::make_unique<BoundMacro>(BoundMacro{&macro, &scope})).get();
}

// --- expressions
// ------------------------------------------------------------------------------------------------------------

Items Interpreter::evaluate_all(const Expression& node, Scope& scope) {
  Items values;
  values.reserve(node.operands.size());
  for (const ExpressionPtr& operand : node.operands) values.push_back(evaluate(*operand, scope));
  return values;
}

Value Interpreter::evaluate(const Expression& node, Scope& scope) {
  using Kind = Expression::Kind;
  const Depth depth(*this);
  line_ = node.line;
  const auto operand = [&](std::size_t i) { return evaluate(*node.operands[i], scope); };
  switch (node.kind) {
    case Kind::constant:
      return node.value;
    case Kind::name:
      return evaluate_name(node, scope);
    case Kind::list:
      return Value::list(evaluate_all(node, scope));
    case Kind::tuple:
      return Value::tuple(evaluate_all(node, scope));
    case Kind::dict:
      return evaluate_dict(node, scope);
    case Kind::attribute:
      return attribute(operand(0), node.name);
    case Kind::subscript: {
      const Value value = operand(0);
      return subscript(value, operand(1));
    }
    case Kind::slice:
      return evaluate_slice(node, scope);
    case Kind::call:
      return evaluate_call(node, scope, nullptr);
    case Kind::filter: {
      const Value value = node.operands[0] == nullptr ? block_text_ : operand(0);
      return apply_filter(node.name, value, arguments(node, 1, scope), budget_);
    }
    case Kind::test: {
      const Value value = operand(0);
      return apply_test(node.name, value, arguments(node, 1, scope));
    }
    case Kind::negate:
      return negated(operand(0));
    case Kind::plus: {
      const Value value = operand(0);
      require_defined(value);
      if (!value.is_number()) fail({}, "bad operand type for unary +: '{}'", value.type_name());
      return value;
    }
    case Kind::logical_not:
      return !operand(0).truthy();
    case Kind::binary: {
      const Value left = operand(0);
      return binary(node.name, left, operand(1), budget_);
    }
    case Kind::concatenate:
      return evaluate_concatenation(node, scope);
    case Kind::compare:
      return evaluate_compare(node, scope);
    case Kind::logical_and:
    case Kind::logical_or:
      return evaluate_logical(node, scope);
    case Kind::conditional:
      if (operand(0).truthy()) return operand(1);
      if (node.operands[2] != nullptr) return operand(2);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
  }
  return {};
}

Value Interpreter::evaluate_name(const Expression& node, Scope& scope) {
  if (const Value* value = scope.find(node.name)) return *value;
  return Value::undefined(fmt::format("'{}' is undefined", node.name));
}

Value Interpreter::evaluate_dict(const Expression& node, Scope& scope) {
  Dict dict;
  for (std::size_t i = 0; i < node.operands.size(); i += 2) {
    Value key = evaluate(*node.operands[i], scope);
    if (key.is_list() || key.is_dict()) fail({}, "unhashable type: '{}'", key.type_name());
    dict.set(std::move(key), evaluate(*node.operands[i + 1], scope));
  }
  return dict;
}

Value Interpreter::evaluate_slice(const Expression& node, Scope& scope) {
  std::array<Value, 4> parts;
  for (std::size_t i = 0; i < 4; ++i) {
    if (node.operands[i] != nullptr) parts[i] = evaluate(*node.operands[i], scope);
  }
  const auto part = [&](std::size_t i) { return node.operands[i] == nullptr ? nullptr : &parts[i]; };
  return slice(parts[0], part(1), part(2), part(3), budget_);
}

Value Interpreter::evaluate_concatenation(const Expression& node, Scope& scope) {
  std::string text;
  for (const ExpressionPtr& operand : node.operands) text += to_text(evaluate(*operand, scope));
  budget_.spend_text(text.size());
  return text;
}

Value Interpreter::evaluate_logical(const Expression& node, Scope& scope) {
  const bool ends_at = node.kind == Expression::Kind::logical_or;
  Value value;
  for (const ExpressionPtr& operand : node.operands) {
    value = evaluate(*operand, scope);
    if (value.truthy() == ends_at) break;
  }
  return value;
}

Value Interpreter::evaluate_compare(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.operands[0], scope);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    const std::string& op = node.operators[i];
    Value right = evaluate(*node.operands[i + 1], scope);
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = (left == right) == (op == "==");
    } else if (op == "<" || op == ">=") {
      holds = less(left, right) == (op == "<");
    } else if (op == ">" || op == "<=") {
      holds = less(right, left) == (op == ">");
    } else {
      holds = contains(right, left) == (op == "in");
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

// --- calls
// ------------------------------------------------------------------------------------------------------------------

Arguments Interpreter::arguments(const Expression& node, std::size_t from, Scope& scope) {
  Arguments result;
  for (std::size_t i = from; i < node.operands.size(); ++i) {
    result.positional.push_back(evaluate(*node.operands[i], scope));
  }
  for (const auto& [name, operand] : node.keywords) result.keywords.emplace_back(name, evaluate(*operand, scope));
  if (node.star != nullptr) {
    for (Value& item : iterate(evaluate(*node.star, scope), budget_)) result.positional.push_back(std::move(item));
  }
  if (node.star_star != nullptr) {
    const Value mapping = evaluate(*node.star_star, scope);
    if (!mapping.is_dict()) fail({}, "argument after ** must be a mapping, not {}", mapping.type_name());
    for (const auto& [key, value] : mapping.dict()->entries()) {
      if (!key.is_string()) throw Error("keywords must be strings");
      result.keywords.emplace_back(*key.string(), value);
    }
  }
  return result;
}

Value Interpreter::evaluate_call(const Expression& node, Scope& scope, const Value* caller) {
  const Expression& callee = *node.operands[0];
  if (callee.kind == Expression::Kind::attribute) {
    const Value self = evaluate(*callee.operands[0], scope);
    require_defined(self);
    if (has_method(self, callee.name)) return call_method(self, callee.name, arguments(node, 1, scope), budget_);
    return call(attribute(self, callee.name), arguments(node, 1, scope), caller);
  }
  const Value value = evaluate(callee, scope);
  return call(value, arguments(node, 1, scope), caller);
}

Value Interpreter::call(const Value& callee, Arguments given, const Value* caller) {
  require_defined(callee);
  if (const BoundMacro* macro = callee.macro()) return call_macro(*macro, std::move(given), caller);
  const Function* function = callee.function();
  if (function == nullptr) fail({}, "'{}' object is not callable", callee.type_name());
  if (function->self != nullptr) return call_method(*function->self, function->name, given, budget_);
  return call_global(function->name, given);
}

Value Interpreter::call_macro(const BoundMacro& bound, Arguments given, const Value* caller) {
  const Macro& macro = *bound.macro;
  Scope& scope = new_scope(*bound.scope);
  const std::size_t named = std::min(given.positional.size(), macro.parameters.size());
  for (std::size_t i = 0; i < named; ++i) scope.set(macro.parameters[i].name, given.positional[i]);
  for (std::size_t i = named; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto found = std::find_if(given.keywords.begin(), given.keywords.end(),
                                    [&](const auto& keyword) { return keyword.first == parameter.name; });
    if (found != given.keywords.end()) {
      scope.set(parameter.name, found->second);
      given.keywords.erase(found);
    } else if (parameter.otherwise != nullptr) {
      scope.set(parameter.name, evaluate(*parameter.otherwise, scope));
    } else {
      scope.set(parameter.name, Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
    }
  }
  if (macro.takes_caller) scope.set("caller", caller == nullptr ? Value::undefined("No caller defined") : *caller);
  if (!macro.takes_caller && caller != nullptr)
    fail({}, "macro '{}' was called with a body that it does not use", macro.name);
  if (macro.takes_varargs) {
    scope.set("varargs", Value::tuple(Items(given.positional.begin() + static_cast<std::ptrdiff_t>(named),
                                            given.positional.end())));
  } else if (given.positional.size() > named) {
    fail({}, "macro '{}' takes not more than {} argument(s)", macro.name, macro.parameters.size());
  }
  if (macro.takes_kwargs) {
    Dict rest;
    for (auto& [name, value] : given.keywords) rest.set(name, std::move(value));
    scope.set("kwargs", std::move(rest));
  } else if (!given.keywords.empty()) {
    fail({}, "macro '{}' takes no keyword argument '{}'", macro.name, given.keywords.front().first);
  }
  return captured(macro.body, scope);
}

Value Interpreter::call_global(const std::string& name, const Arguments& given) {
  if (name == "namespace") return make_namespace(given);
  if (name == "range") return range(given);
  if (name == "strftime_now") return strftime_now(given);
  if (name == "raise_exception") throw Error(to_text(*Bound(given, name, {"message"}, 1).get(0)));
  Dict dict;
  if (!given.positional.empty()) {
    const Value& from = given.positional.front();
    if (!from.is_dict() || given.positional.size() > 1) throw Error("dict() takes one mapping");
    for (const auto& [key, value] : from.dict()->entries()) dict.set(key, value);
  }
  for (const auto& [key, value] : given.keywords) dict.set(key, value);
  return dict;
}

Value Interpreter::make_namespace(const Arguments& given) {
  budget_.spend(kScopeUnits);
  auto names = std::make_unique<Namespace>();
  if (!given.positional.empty()) {
    const Value& from = given.positional.front();
    if (!from.is_dict() || given.positional.size() > 1) throw Error("namespace() takes one mapping");
    for (const auto& [key, value] : from.dict()->entries()) names->attributes[to_text(key)] = value;
  }
  for (const auto& [key, value] : given.keywords) names->attributes[key] = value;
  return namespaces_.emplace_back(std::move(names)).get();
}

Value Interpreter::range(const Arguments& given) {
  const Bound bound(given, "range", {"start", "stop", "step"}, 1);
  const bool single = bound.get(1) == nullptr;
  const std::int64_t start = single ? 0 : bound.integer(0, 0);
  const std::int64_t stop = single ? bound.integer(0, 0) : bound.integer(1, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) throw Error("range() arg 3 must not be zero");
  const double count = (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
  if (count > static_cast<double>(kMaxRange)) fail({}, "a range of more than {} numbers", kMaxRange);
  Items items;
  const double limit = static_cast<double>(stop);
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    budget_.spend(1);
    items.emplace_back(i);
    const double next = static_cast<double>(i) + static_cast<double>(step);
    if (step > 0 ? next >= limit : next <= limit) break;  // adding might overflow
  }
  return Value::list(std::move(items));
}

Value Interpreter::strftime_now(const Arguments& given) const {
  const Bound bound(given, "strftime_now", {"format"}, 1);
  const std::string* format = bound.string(0);
  if (format == nullptr || format->size() > 200) throw Error("strftime_now() needs a short format");
  if (format->empty()) return "";
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now_);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 4096> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), format->c_str(), &local));
}

}  // namespace pergola::jinja
