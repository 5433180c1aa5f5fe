#pragma once

#include <optional>
#include <string>

#include "text/grammar/automaton.h"

namespace pergola {

/// Most digits before and behind the point that a number is given.
inline constexpr int kIntegerDigits = 18;
inline constexpr int kFractionDigits = 16;

/// A bound of numbers as decimals, without sign or leading zeros: "12", "0.5".
struct Bound10 {
  bool negative = false;
  std::string whole;     ///< digits, "0" for none
  std::string fraction;  ///< digits without zeros at the end
  bool exclusive = false;

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// Reads a JSON number that was written as `text`, without exponent.
Bound10 read_bound(const std::string& text, bool exclusive);

/// JSON numbers without exponent within the bounds that are given; `whole_only`: without fraction. Appends to `builder`
/// from `from`; the end is one node. A range without numbers leads nowhere.
AutomatonBuilder::NodeId number_between(AutomatonBuilder& builder, AutomatonBuilder::NodeId from,
                                        std::optional<Bound10> least, std::optional<Bound10> most, bool whole_only);

}  // namespace pergola
