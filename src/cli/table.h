#pragma once

#include <string>
#include <vector>

namespace pergola {

/// Rows of text under headings. Columns whose cells start with digits are aligned right, others left.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : rows_{std::move(headings)} {}

  /// As many cells as there are headings.
  void add(std::vector<std::string> cells);

  std::string text() const;      ///< columns padded with spaces
  std::string markdown() const;  ///< a pipe table
  std::string csv() const;       ///< RFC 4180

 private:
  std::vector<std::vector<std::string>> rows_;  ///< the headings first
};

}  // namespace pergola
