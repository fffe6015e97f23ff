#include "base/nearest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace reelmesh {
namespace {

std::string_view without_section(std::string_view name) {
  return name.substr(name.find_last_of('.') + 1);  // npos + 1 is 0: the whole name
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of distances between prefixes of a and b.
  std::vector<int> two_back(b.size() + 1), back(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(two_back, back);
    std::swap(back, row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = back[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({back[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_back[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view given, std::span<const std::string> names) {
  given = given.substr(0, 200);  // the time is its length x that of the names
  std::pair<int, int> best{std::numeric_limits<int>::max(), 0};
  std::string found;
  for (const std::string& name : names) {
    const int whole = edit_distance(given, name);
    const int key = edit_distance(without_section(given), without_section(name));
    const std::pair<int, int> cost{std::min(whole, key + 1), whole};
    if (cost < best) {
      best = cost;
      found = name;
    }
  }
  const int likely = 1 + static_cast<int>(without_section(given).size()) / 3;
  return best.first <= likely ? found : "";
}

std::string did_you_mean(std::string_view before, std::string_view name, std::string_view after) {
  return name.empty() ? "" : fmt::format("; did you mean {}{}{}?", before, name, after);
}

}  // namespace reelmesh
