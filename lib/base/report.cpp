#include "base/report.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text.hpp"

namespace reelmesh {
namespace {

// Columns of UTF-8 text: its bytes except continuation bytes.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

}  // namespace

Table::Table(std::vector<std::string> header, std::size_t left)
    : header_(!header.empty()), left_(left) {
  if (header_) rows_.push_back(std::move(header));
}

void Table::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::str() const {
  std::vector<std::size_t> widths;
  for (const auto& cells : rows_) {
    if (cells.size() > widths.size()) widths.resize(cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width(cells[i]));
  }
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string& cell = rows_[r][i];
      const std::string fill(widths[i] - width(cell), ' ');
      if (i > 0) line += "  ";
      line += i < left_ ? cell + fill : fill + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
    if (header_ && r == 0) {
      std::size_t total = 2 * (widths.size() - 1);
      for (const std::size_t w : widths) total += w;
      out += std::string(total, '-') + '\n';
    }
  }
  return out;
}

}  // namespace reelmesh
