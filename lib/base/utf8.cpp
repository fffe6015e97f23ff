#include "base/utf8.hpp"

namespace reelmesh {

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  const std::size_t length = first < 0xe0U ? 2 : first < 0xf0U ? 3 : 4;
  if (first < 0xc2U || first > 0xf4U) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  if ((first == 0xe0U && second < 0xa0U) || (first == 0xedU && second > 0x9fU) ||
      (first == 0xf0U && second < 0x90U) || (first == 0xf4U && second > 0x8fU)) {
    return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (const std::size_t length = utf8_length(text)) text.remove_prefix(length);
  return text.empty();
}

std::string as_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    valid += length > 0 ? text.substr(0, length) : "\uFFFD";
    text.remove_prefix(length > 0 ? length : 1);
  }
  return valid;
}

}  // namespace reelmesh
