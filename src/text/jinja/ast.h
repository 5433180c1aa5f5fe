#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace pergola::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// A node of an expression. What `operands` are is said beside each kind; an operand that was left out is null.
struct Expression {
  enum class Kind : std::uint8_t {
    constant,     ///< value
    name,         ///< name
    list,         ///< operands
    tuple,        ///< operands
    dict,         ///< operands: key, value, key, value, ...
    attribute,    ///< operands[0].name
    subscript,    ///< operands[0][operands[1]]
    slice,        ///< operands[0][operands[1] : operands[2] : operands[3]]
    call,         ///< operands[0](operands[1...], keywords, star, star_star)
    filter,       ///< operands[0] | name(operands[1...], keywords, ...); operands[0] null: the text of a block
    test,         ///< operands[0] is name(operands[1...], keywords, ...)
    negate,       ///< -operands[0]
    plus,         ///< +operands[0]
    logical_not,  ///< not operands[0]
    binary,       ///< operands[0] name operands[1], for + - * / // % **
    concatenate,  ///< operands joined as text
    compare,      ///< operands[0] operators[0] operands[1] operators[1] ...
    logical_and,
    logical_or,
    conditional,  ///< operands[1] if operands[0] else operands[2]
  };

  Kind kind;
  int line;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr star;
  ExpressionPtr star_star;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<Statement>;

/// A parameter of a macro.
struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  ///< null: undefined when not given
};

/// The body of a macro, of a call block (whose name is "caller").
struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool takes_varargs = false;  ///< the body names `varargs`
  bool takes_kwargs = false;   ///< the body names `kwargs`
  bool takes_caller = false;   ///< the body names `caller`
};

/// A statement. What the members hold is said beside each kind.
struct Statement {
  enum class Kind : std::uint8_t {
    text,        ///< text
    print,       ///< expression
    branch,      ///< if expression: body, else: otherwise
    loop,        ///< for target in expression if condition: body, else: otherwise
    assign,      ///< target = expression
    capture,     ///< target = the text of body, through the filter `expression` if there is one
    macro,       ///< macro
    call,        ///< expression with `macro` as its caller
    filter,      ///< the text of body through the filter `expression`
    with,        ///< target (a tuple) = expression (a tuple), for body
    scope,       ///< body
    leave_loop,  ///< break
    next_round,  ///< continue
  };

  Kind kind;
  int line;
  std::string text;
  ExpressionPtr target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Block body;
  Block otherwise;
  std::unique_ptr<Macro> macro;
};

}  // namespace pergola::jinja
