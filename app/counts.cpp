#include "counts.hpp"

namespace reelmesh::app {

std::string with_separators(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t first_digit = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first_digit + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

}  // namespace reelmesh::app
