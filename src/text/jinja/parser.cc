#include "text/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/lexer.h"
#include "text/jinja/tests.h"
#include "text/utf8.h"

namespace pergola::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& file) : tokens_(std::move(tokens)), file_(file) {}

  Block run() {
    Block block = statements({});
    if (!at(Token::Kind::end)) reject("unexpected end of a tag");
    return block;
  }

 private:
  using Kind = Expression::Kind;

  /// Counts nesting for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxSyntaxDepth) parser_.reject("the template is nested too deep");
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void reject(const std::string& what) const {
    fail({.file = fmt::format("{}:{}", file_, current().line)}, "{}", what);
  }

  const Token& current() const { return tokens_[next_]; }
  const Token& ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  bool at(Token::Kind kind) const { return current().kind == kind; }
  bool at_name(std::string_view name) const { return at(Token::Kind::name) && current().text == name; }
  bool at_op(std::string_view op) const { return at(Token::Kind::op) && current().text == op; }
  bool at_name_of(Names names) const {
    return at(Token::Kind::name) && std::find(names.begin(), names.end(), current().text) != names.end();
  }

  Token take() { return at(Token::Kind::end) ? current() : tokens_[next_++]; }
  bool take_op(std::string_view op) { return at_op(op) && (++next_, true); }
  bool take_name(std::string_view name) { return at_name(name) && (++next_, true); }

  std::string describe() const {
    switch (current().kind) {
      case Token::Kind::end:
        return "the end of the template";
      case Token::Kind::block_end:
      case Token::Kind::variable_end:
        return "the end of the tag";
      default:
        return in_quotes(current().text);
    }
  }

  void expect(Token::Kind kind, std::string_view what) {
    if (!at(kind)) reject(fmt::format("expected {}, got {}", what, describe()));
    ++next_;
  }
  void expect_op(std::string_view op) {
    if (!take_op(op)) reject(fmt::format("expected '{}', got {}", op, describe()));
  }
  std::string expect_name() {
    if (!at(Token::Kind::name)) reject(fmt::format("expected a name, got {}", describe()));
    return take().text;
  }
  void expect_block_end() { expect(Token::Kind::block_end, "the end of the tag"); }

  ExpressionPtr make(Kind kind, std::string name = {}) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = current().line;
    node->name = std::move(name);
    return node;
  }
  template <typename... Operands>
  ExpressionPtr make_of(Kind kind, std::string name, Operands... operands) const {
    ExpressionPtr node = make(kind, std::move(name));
    (node->operands.push_back(std::move(operands)), ...);
    return node;
  }

  // --- statements ---------------------------------------------------------------------------------------------------

  // Statements up to a block tag that starts with one of `ends`, which is the current token afterwards.
  Block statements(Names ends) {
    const Nesting nesting(*this);
    Block block;
    for (;;) {
      if (at(Token::Kind::end)) {
        if (ends.size() > 0) reject(fmt::format("'{}' is missing", *(ends.end() - 1)));
        return block;
      }
      if (at(Token::Kind::data)) {
        Statement text{.kind = Statement::Kind::text, .line = current().line};
        text.text = take().text;
        block.push_back(std::move(text));
      } else if (at(Token::Kind::variable_begin)) {
        ++next_;
        Statement print{.kind = Statement::Kind::print, .line = current().line};
        print.expression = tuple_or_single(true, {});
        expect(Token::Kind::variable_end, "the end of the tag");
        block.push_back(std::move(print));
      } else {
        expect(Token::Kind::block_begin, "a tag");
        if (at_name_of(ends)) return block;
        block.push_back(statement());
      }
    }
  }

  // A body and its end tag. The name after the tag's begin is taken.
  Block body(Names ends) {
    expect_block_end();
    return statements(ends);
  }
  Block whole_body(std::string_view end) {
    Block block = body({end});
    ++next_;
    if (end == "endmacro" && at(Token::Kind::name)) ++next_;  // {% endmacro name %}
    expect_block_end();
    return block;
  }

  Statement statement() {
    const std::string name = expect_name();
    Statement result{.kind = Statement::Kind::scope, .line = current().line};
    if (name == "if") {
      branch(result);
    } else if (name == "for") {
      loop(result);
    } else if (name == "set") {
      assign(result);
    } else if (name == "macro") {
      macro(result);
    } else if (name == "call") {
      call_block(result);
    } else if (name == "filter") {
      result.kind = Statement::Kind::filter;
      result.expression = filters(nullptr, true);
      result.body = whole_body("endfilter");
    } else if (name == "with") {
      with(result);
    } else if (name == "generation") {
      result.body = whole_body("endgeneration");
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) reject(fmt::format("'{}' outside of a loop", name));
      result.kind = name == "break" ? Statement::Kind::leave_loop : Statement::Kind::next_round;
      expect_block_end();
    } else {
      reject(fmt::format("the tag {} is not supported here", in_quotes(name)));
    }
    return result;
  }

  void branch(Statement& result) {
    const Nesting nesting(*this);
    result.kind = Statement::Kind::branch;
    result.expression = tuple_or_single(false, {});
    result.body = body({"elif", "else", "endif"});
    const std::string next = take().text;
    if (next == "elif") {
      Statement inner{.kind = Statement::Kind::branch, .line = current().line};
      branch(inner);
      result.otherwise.push_back(std::move(inner));
      return;
    }
    if (next == "else") {
      result.otherwise = whole_body("endif");
    } else {
      expect_block_end();
    }
  }

  void loop(Statement& result) {
    result.kind = Statement::Kind::loop;
    result.target = target(false);
    if (!take_name("in")) reject("expected 'in'");
    result.expression = tuple_or_single(false, {"recursive"});
    if (take_name("if")) result.condition = expression();
    if (at_name("recursive")) reject("recursive loops are not supported");
    ++loops_;
    result.body = body({"else", "endfor"});
    --loops_;
    if (take().text == "else") {
      result.otherwise = whole_body("endfor");
    } else {
      expect_block_end();
    }
  }

  void assign(Statement& result) {
    result.target = target(true);
    if (take_op("=")) {
      result.kind = Statement::Kind::assign;
      result.expression = tuple_or_single(true, {});
      expect_block_end();
      return;
    }
    result.kind = Statement::Kind::capture;
    if (at_op("|")) result.expression = filters(nullptr, false);
    result.body = whole_body("endset");
  }

  void macro(Statement& result) {
    result.kind = Statement::Kind::macro;
    result.macro = std::make_unique<Macro>();
    result.macro->name = expect_name();
    parameters(*result.macro);
    macro_body(*result.macro, "endmacro");
  }

  void call_block(Statement& result) {
    result.kind = Statement::Kind::call;
    result.macro = std::make_unique<Macro>();
    result.macro->name = "caller";
    if (at_op("(")) parameters(*result.macro);
    result.expression = expression();
    if (result.expression->kind != Kind::call) reject("expected a call");
    macro_body(*result.macro, "endcall");
  }

  void macro_body(Macro& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    macro.body = whole_body(end);
    macros_.pop_back();
    loops_ = loops;
  }

  void parameters(Macro& macro) {
    expect_op("(");
    while (!take_op(")")) {
      if (!macro.parameters.empty()) expect_op(",");
      Parameter parameter{.name = expect_name(), .otherwise = nullptr};
      if (take_op("=")) {
        parameter.otherwise = expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
        reject("a parameter without default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
  }

  void with(Statement& result) {
    result.kind = Statement::Kind::with;
    result.target = make(Kind::tuple);
    result.expression = make(Kind::tuple);
    while (!at(Token::Kind::block_end)) {
      if (!result.target->operands.empty()) expect_op(",");
      result.target->operands.push_back(target(false));
      expect_op("=");
      result.expression->operands.push_back(expression());
    }
    result.body = whole_body("endwith");
  }

  // A name, a tuple of names, or (where allowed) an attribute of a namespace.
  ExpressionPtr target(bool allow_namespace) {
    const Nesting nesting(*this);
    const auto single = [&]() -> ExpressionPtr {
      if (take_op("(")) {
        ExpressionPtr inner = target(false);
        expect_op(")");
        return inner;
      }
      const std::string name = expect_name();
      for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None", "loop"}) {
        if (name == reserved && name != "loop") reject(fmt::format("cannot assign to '{}'", name));
      }
      return make(Kind::name, name);
    };
    ExpressionPtr first = single();
    if (allow_namespace && first->kind == Kind::name && take_op(".")) {
      return make_of(Kind::attribute, expect_name(), std::move(first));
    }
    if (!at_op(",")) return first;
    ExpressionPtr tuple = make(Kind::tuple);
    tuple->operands.push_back(std::move(first));
    while (take_op(",")) {
      if (at_name("in") || at_op("=") || at_op(")")) break;
      tuple->operands.push_back(single());
    }
    return tuple;
  }

  // --- expressions, one function a level of precedence
  // ----------------------------------------------------------------

  // An expression, or a tuple without parentheses. `ends`: names that end a tuple.
  ExpressionPtr tuple_or_single(bool with_conditional, Names ends) {
    const auto element = [&] { return with_conditional ? expression() : disjunction(); };
    ExpressionPtr first = element();
    if (!at_op(",")) return first;
    ExpressionPtr tuple = make(Kind::tuple);
    tuple->operands.push_back(std::move(first));
    while (take_op(",")) {
      if (at(Token::Kind::variable_end) || at(Token::Kind::block_end) || at_op(")") || at_name_of(ends)) break;
      tuple->operands.push_back(element());
    }
    return tuple;
  }

  ExpressionPtr expression() {
    const Nesting nesting(*this);
    ExpressionPtr value = disjunction();
    const int depth = depth_;
    while (take_name("if")) {
      deepen();
      ExpressionPtr condition = disjunction();
      ExpressionPtr otherwise = take_name("else") ? expression() : nullptr;
      value = make_of(Kind::conditional, "", std::move(condition), std::move(value), std::move(otherwise));
    }
    depth_ = depth;
    return value;
  }

  // Operands joined by a word, in one node.
  template <typename Next>
  ExpressionPtr joined(std::string_view word, Kind kind, Next next) {
    ExpressionPtr first = next();
    if (!at_name(word)) return first;
    ExpressionPtr node = make_of(kind, "", std::move(first));
    while (take_name(word)) node->operands.push_back(next());
    return node;
  }

  ExpressionPtr disjunction() {
    return joined("or", Kind::logical_or, [&] { return conjunction(); });
  }
  ExpressionPtr conjunction() {
    return joined("and", Kind::logical_and, [&] { return negation(); });
  }

  ExpressionPtr negation() {
    if (!take_name("not")) return comparison();
    const Nesting nesting(*this);
    return make_of(Kind::logical_not, "", negation());
  }

  std::string comparison_operator() {
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take_op(op)) return std::string(op);
    }
    if (take_name("in")) return "in";
    if (at_name("not") && ahead().kind == Token::Kind::name && ahead().text == "in") {
      next_ += 2;
      return "not in";
    }
    return "";
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    std::string op = comparison_operator();
    if (op.empty()) return first;
    ExpressionPtr node = make_of(Kind::compare, "", std::move(first));
    for (; !op.empty(); op = comparison_operator()) {
      node->operators.push_back(op);
      node->operands.push_back(sum());
    }
    return node;
  }

  // Left-associative chain of `operators` over what `next` parses.
  template <typename Next>
  ExpressionPtr chain(Names operators, Next next) {
    ExpressionPtr left = next();
    const int depth = depth_;
    for (;; deepen()) {
      const auto found = std::find_if(operators.begin(), operators.end(), [&](auto op) { return at_op(op); });
      if (found == operators.end()) break;
      ++next_;
      left = make_of(Kind::binary, std::string(*found), std::move(left), next());
    }
    depth_ = depth;
    return left;
  }

  ExpressionPtr sum() {
    return chain({"+", "-"}, [&] { return concatenation(); });
  }

  ExpressionPtr concatenation() {
    ExpressionPtr first = product();
    if (!at_op("~")) return first;
    ExpressionPtr node = make_of(Kind::concatenate, "", std::move(first));
    while (take_op("~")) node->operands.push_back(product());
    return node;
  }

  ExpressionPtr product() {
    return chain({"*", "//", "/", "%"}, [&] { return power(); });
  }
  ExpressionPtr power() {
    return chain({"**"}, [&] { return unary(true); });
  }

  ExpressionPtr unary(bool with_filter) {
    const Nesting nesting(*this);
    ExpressionPtr node;
    if (take_op("-")) {
      node = make_of(Kind::negate, "", unary(false));
    } else if (take_op("+")) {
      node = make_of(Kind::plus, "", unary(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filter ? filter_expression(std::move(node)) : std::move(node);
  }

  ExpressionPtr constant(Value value) {
    ExpressionPtr node = make(Kind::constant);
    node->value = std::move(value);
    return node;
  }

  ExpressionPtr primary() {
    if (at(Token::Kind::name)) return name();
    if (at(Token::Kind::string)) {
      std::string text;
      while (at(Token::Kind::string)) text += take().text;
      return constant(std::move(text));
    }
    if (at(Token::Kind::integer)) return constant(integer());
    if (at(Token::Kind::real)) return constant(real());
    if (take_op("(")) {
      if (take_op(")")) return make(Kind::tuple);
      ExpressionPtr inner = tuple_or_single(true, {});
      expect_op(")");
      return inner;
    }
    if (take_op("[")) return list();
    if (take_op("{")) return dict();
    reject(fmt::format("unexpected {}", describe()));
  }

  ExpressionPtr name() {
    const std::string text = take().text;
    if (text == "true" || text == "True") return constant(true);
    if (text == "false" || text == "False") return constant(false);
    if (text == "none" || text == "None") return constant(None{});
    for (Macro* macro : macros_) {
      macro->takes_varargs |= text == "varargs";
      macro->takes_kwargs |= text == "kwargs";
      macro->takes_caller |= text == "caller";
    }
    return make(Kind::name, text);
  }

  Value integer() {
    const std::string text = take().text;
    const char mark = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : '\0';
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    const char* const begin = text.data() + (base == 10 ? 0 : 2);
    const char* const end = text.data() + text.size();
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value, base);
    if (error != std::errc() || stop != end) reject(fmt::format("the number {} cannot be read", in_quotes(text)));
    return value;
  }

  Value real() {
    const std::string text = take().text;
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) reject(fmt::format("the number {} cannot be read", in_quotes(text)));
    return value;
  }

  ExpressionPtr list() {
    ExpressionPtr node = make(Kind::list);
    while (!take_op("]")) {
      if (!node->operands.empty()) expect_op(",");
      if (take_op("]")) break;
      node->operands.push_back(expression());
    }
    return node;
  }

  ExpressionPtr dict() {
    ExpressionPtr node = make(Kind::dict);
    while (!take_op("}")) {
      if (!node->operands.empty()) expect_op(",");
      if (take_op("}")) break;
      node->operands.push_back(expression());
      expect_op(":");
      node->operands.push_back(expression());
    }
    return node;
  }

  // Attributes, subscripts and calls. Each wraps the one before, so a long chain is deep: it counts as nesting.
  ExpressionPtr postfix(ExpressionPtr node) {
    const int depth = depth_;
    for (;;) {
      if (take_op(".")) {
        node = at(Token::Kind::integer) ? make_of(Kind::subscript, "", std::move(node), constant(integer()))
                                        : make_of(Kind::attribute, expect_name(), std::move(node));
      } else if (take_op("[")) {
        node = subscript(std::move(node));
      } else if (at_op("(")) {
        node = make_of(Kind::call, "", std::move(node));
        arguments(*node);
      } else {
        break;
      }
      deepen();
    }
    depth_ = depth;
    return node;
  }

  void deepen() {
    if (++depth_ > kMaxSyntaxDepth) reject("the template is nested too deep");
  }

  ExpressionPtr subscript(ExpressionPtr node) {
    ExpressionPtr index = at_op(":") ? nullptr : expression();
    if (!at_op(":")) {
      if (at_op(",")) reject("a subscript of several values is not supported");
      expect_op("]");
      return make_of(Kind::subscript, "", std::move(node), std::move(index));
    }
    ExpressionPtr slice = make_of(Kind::slice, "", std::move(node), std::move(index));
    while (take_op(":")) slice->operands.push_back(at_op(":") || at_op("]") ? nullptr : expression());
    if (slice->operands.size() > 4) reject("a slice has at most three parts");
    slice->operands.resize(4);
    expect_op("]");
    return slice;
  }

  // "(a, b, c=d, *e, **f)"
  void arguments(Expression& call) {
    expect_op("(");
    bool first = true;
    while (!take_op(")")) {
      if (!first) expect_op(",");
      first = false;
      if (take_op(")")) return;
      if (take_op("*")) {
        if (call.star != nullptr || call.star_star != nullptr) reject("invalid arguments");
        call.star = expression();
      } else if (take_op("**")) {
        if (call.star_star != nullptr) reject("invalid arguments");
        call.star_star = expression();
      } else if (at(Token::Kind::name) && ahead().kind == Token::Kind::op && ahead().text == "=") {
        if (call.star_star != nullptr) reject("invalid arguments");
        std::string name = take().text;
        ++next_;
        call.keywords.emplace_back(std::move(name), expression());
      } else {
        if (!call.keywords.empty() || call.star != nullptr || call.star_star != nullptr) reject("invalid arguments");
        call.operands.push_back(expression());
      }
    }
  }

  ExpressionPtr filter_expression(ExpressionPtr node) {
    const int depth = depth_;
    for (;;) {
      if (at_op("|")) {
        node = filters(std::move(node), false);
      } else if (take_name("is")) {
        node = test(std::move(node));
      } else if (at_op("(")) {
        node = make_of(Kind::call, "", std::move(node));
        arguments(*node);
      } else {
        break;
      }
      deepen();
    }
    depth_ = depth;
    return node;
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (take_op(".")) name += "." + expect_name();
    return name;
  }

  // "| a | b(c)". `started`: the first name stands without its bar, as in {% filter a %}.
  ExpressionPtr filters(ExpressionPtr node, bool started) {
    const int depth = depth_;
    while (started || take_op("|")) {
      started = false;
      const std::string name = dotted_name();
      if (!is_filter(name)) reject(fmt::format("the filter {} is not supported", in_quotes(name)));
      node = make_of(Kind::filter, name, std::move(node));
      if (at_op("(")) arguments(*node);
      deepen();
    }
    depth_ = depth;
    return node;
  }

  ExpressionPtr test(ExpressionPtr node) {
    const bool negated = take_name("not");
    const std::string name = dotted_name();
    if (!is_test(name)) reject(fmt::format("the test {} is not supported", in_quotes(name)));
    node = make_of(Kind::test, name, std::move(node));
    if (at_op("(")) {
      arguments(*node);
    } else if (starts_argument()) {
      if (at_name("is")) reject("tests cannot be chained with 'is'");
      node->operands.push_back(postfix(primary()));
    }
    return negated ? make_of(Kind::logical_not, "", std::move(node)) : std::move(node);
  }

  bool starts_argument() const {
    switch (current().kind) {
      case Token::Kind::name:
        return !at_name_of({"else", "or", "and"}) && !(at_name("if") || at_name("not") || at_name("in"));
      case Token::Kind::string:
      case Token::Kind::integer:
      case Token::Kind::real:
        return true;
      default:
        return at_op("[") || at_op("{");
    }
  }

  std::vector<Token> tokens_;
  const std::string& file_;
  std::size_t next_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  std::vector<Macro*> macros_;  // that are open
};

}  // namespace

Block parse(std::string_view source, const std::string& file) {
  return Parser(tokenize(source, file), file).run();
}

}  // namespace pergola::jinja
