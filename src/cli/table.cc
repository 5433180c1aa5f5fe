#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace pergola {
namespace {

/// Characters as a terminal counts them, near enough: code points of UTF-8.
std::size_t width_of(const std::string& cell) {
  return static_cast<std::size_t>(std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& cell, std::size_t width, bool left) {
  const std::string space(width - width_of(cell), ' ');
  return left ? cell + space : space + cell;
}

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string result = "\"";
  for (const char c : cell) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + "\"";
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

/// Whether each column holds figures: every cell under the heading starts with a digit or is empty.
std::vector<bool> figures_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<bool> figures(rows.front().size(), true);
  for (std::size_t r = 1; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const std::string& cell = rows[r][i];
      if (!cell.empty() && (cell[0] < '0' || cell[0] > '9')) figures[i] = false;
    }
  }
  return figures;
}

std::vector<std::size_t> widths_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() == rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  const std::vector<std::size_t> widths = widths_of(rows_);
  const std::vector<bool> figures = figures_of(rows_);
  std::string result;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += (i > 0 ? "  " : "") + padded(row[i], widths[i], !figures[i]);
    result += trimmed(line) + "\n";
  }
  return result;
}

std::string Table::markdown() const {
  const std::vector<std::size_t> widths = widths_of(rows_);
  const std::vector<bool> figures = figures_of(rows_);
  std::string result;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    result += "|";
    for (std::size_t i = 0; i < widths.size(); ++i) result += " " + padded(rows_[r][i], widths[i], !figures[i]) + " |";
    result += "\n";
    if (r > 0) continue;
    result += "|";
    for (std::size_t i = 0; i < widths.size(); ++i)
      result += std::string(widths[i] + 1, '-') + (figures[i] ? ":|" : "-|");
    result += "\n";
  }
  return result;
}

std::string Table::csv() const {
  std::string result;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) result += (i > 0 ? "," : "") + quoted(row[i]);
    result += "\n";
  }
  return result;
}

}  // namespace pergola
