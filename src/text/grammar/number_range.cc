#include "text/grammar/number_range.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace pergola {
namespace {

using NodeId = AutomatonBuilder::NodeId;

unsigned char digit(int value) {
  return static_cast<unsigned char>('0' + value);
}

// Order of whole numbers written without leading zeros.
bool less(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::string plus_one(std::string number) {
  for (std::size_t i = number.size(); i-- > 0;) {
    if (number[i] != '9') {
      ++number[i];
      return number;
    }
    number[i] = '0';
  }
  number.insert(number.begin(), '1');
  return number;
}

std::string minus_one(std::string number) {  // number > 0
  for (std::size_t i = number.size(); i-- > 0;) {
    if (number[i] != '0') {
      --number[i];
      break;
    }
    number[i] = '9';
  }
  if (number.size() > 1 && number[0] == '0') number.erase(0, 1);
  return number;
}

/// Numbers without sign between two bounds.
class Magnitudes {
 public:
  Magnitudes(AutomatonBuilder& builder, bool whole_only, NodeId end)
      : b_(builder), whole_only_(whole_only), end_(end) {}

  void between(NodeId from, const Bound10& low, const std::optional<Bound10>& high) {
    if (high && less(high->whole, low.whole)) return;
    const bool same_whole = high && high->whole == low.whole;
    if (whole_only_) return wholes(from, low, high);
    // The lowest whole part, with a fraction that is not too small; the highest; and those between with any.
    const NodeId lowest = b_.text(from, low.whole);
    fraction(lowest, &low, same_whole ? &*high : nullptr);
    if (same_whole) return;
    const std::string first = plus_one(low.whole);
    if (high) fraction(b_.text(from, high->whole), nullptr, &*high);
    const std::string last = high ? minus_one(high->whole) : std::string(kIntegerDigits, '9');
    if (less(last, first)) return;
    const NodeId middle = b_.node();
    digits_between(from, first, last, middle);
    fraction(middle, nullptr, nullptr);
  }

 private:
  void wholes(NodeId from, const Bound10& low, const std::optional<Bound10>& high) {
    const bool up = !low.fraction.empty() || low.exclusive;
    const std::string first = up ? plus_one(low.whole) : low.whole;
    std::string last(kIntegerDigits, '9');
    if (high) {
      const bool down = high->exclusive && high->fraction.empty();
      if (down && high->whole == "0") return;
      last = down ? minus_one(high->whole) : high->whole;
    }
    if (!less(last, first)) digits_between(from, first, last, end_);
  }

  // Whole numbers first..last, one length after another.
  void digits_between(NodeId from, const std::string& first, const std::string& last, NodeId to) {
    for (std::size_t size = first.size(); size <= last.size(); ++size) {
      std::string low(size, '0');
      low[0] = '1';
      if (size == first.size()) low = first;
      const std::string high = size == last.size() ? last : std::string(size, '9');
      states_.clear();
      fixed(from, low, high, 0, true, true, to);
    }
  }

  // The digits from `at` on, of numbers that so far equal the bounds (tight) or lie between.
  void fixed(NodeId from, const std::string& low, const std::string& high, std::size_t at, bool tight_low,
             bool tight_high, NodeId to) {
    const int least = tight_low ? low[at] - '0' : 0;
    const int most = tight_high ? high[at] - '0' : 9;
    for (int d = least; d <= most; ++d) {
      const bool next_low = tight_low && d == least;
      const bool next_high = tight_high && d == most;
      if (at + 1 == low.size()) {
        b_.byte(from, digit(d), digit(d), to);
        continue;
      }
      const auto [found, added] = states_.try_emplace(std::tuple(at + 1, next_low, next_high), 0);
      if (added) found->second = b_.node();
      const NodeId next = found->second;
      b_.byte(from, digit(d), digit(d), next);
      if (added) fixed(next, low, high, at + 1, next_low, next_high, to);
    }
  }

  // What may follow a whole part: a point and digits, compared with a bound's fraction where one is given.
  void fraction(NodeId from, const Bound10* low, const Bound10* high) {
    states_.clear();
    if (may_stop(0, low, high)) b_.empty(from, end_);
    const NodeId point = b_.node();
    b_.byte(from, '.', '.', point);
    fraction_digits(point, 0, low, high);
  }

  static int digit_at(const Bound10& bound, std::size_t at) {
    return at < bound.fraction.size() ? bound.fraction[at] - '0' : 0;
  }

  // Whether a number that equals the tight bounds up to digit `at` may end there.
  static bool may_stop(std::size_t at, const Bound10* low, const Bound10* high) {
    if (low != nullptr && (at < low->fraction.size() || low->exclusive)) return false;
    return high == nullptr || at < high->fraction.size() || !high->exclusive;
  }

  void fraction_digits(NodeId from, std::size_t at, const Bound10* low, const Bound10* high) {
    if (at == kFractionDigits) return;
    const int least = low != nullptr ? digit_at(*low, at) : 0;
    const int most = high != nullptr ? digit_at(*high, at) : 9;
    for (int d = least; d <= most; ++d) {
      const Bound10* const next_low = d == least ? low : nullptr;
      const Bound10* const next_high = d == most ? high : nullptr;
      const auto [found, added] = states_.try_emplace(std::tuple(at + 1, next_low != nullptr, next_high != nullptr), 0);
      if (added) found->second = b_.node();
      const NodeId next = found->second;
      b_.byte(from, digit(d), digit(d), next);
      if (!added) continue;
      if (may_stop(at + 1, next_low, next_high)) b_.empty(next, end_);
      fraction_digits(next, at + 1, next_low, next_high);
    }
  }

  AutomatonBuilder& b_;
  bool whole_only_;
  NodeId end_;
  std::map<std::tuple<std::size_t, bool, bool>, NodeId> states_;
};

}  // namespace

Bound10 read_bound(const std::string& text, bool exclusive) {
  Bound10 bound{.negative = text.starts_with('-'), .exclusive = exclusive};
  const std::string digits = bound.negative ? text.substr(1) : text;
  const std::size_t point = digits.find('.');
  bound.whole = digits.substr(0, point);
  if (point != std::string::npos) bound.fraction = digits.substr(point + 1);
  while (bound.fraction.ends_with('0')) bound.fraction.pop_back();
  if (bound.is_zero()) bound.negative = false;
  return bound;
}

NodeId number_between(AutomatonBuilder& builder, NodeId from, std::optional<Bound10> least, std::optional<Bound10> most,
                      bool whole_only) {
  const NodeId end = builder.node();
  Magnitudes magnitudes(builder, whole_only, end);
  const Bound10 zero{.whole = "0"};
  if (!most || !most->negative) {
    const bool from_zero = !least || least->negative;
    magnitudes.between(from, from_zero ? zero : *least, most);
  }
  // Below zero the magnitudes run the other way; zero itself is written without a sign.
  if (!least || least->negative) {
    Bound10 low{.whole = "0", .exclusive = true};
    if (most && most->negative) low = *most;
    std::optional<Bound10> high = least;
    const NodeId minus = builder.node();
    builder.byte(from, '-', '-', minus);
    magnitudes.between(minus, low, high);
  }
  return end;
}

}  // namespace pergola
