#include "text/spaces.hpp"

#include "base/text.hpp"
#include "text/unicode.hpp"

namespace reelmesh {
namespace {

/// Number of bytes of the first character.
std::size_t first_bytes(std::string_view text) {
  std::size_t end = 1;
  if (static_cast<unsigned char>(text[0]) < 0x80) return end;
  while (end < text.size() && continues_character(text[end])) ++end;
  return end;
}

bool is_one_space(std::string_view character) {
  const std::wstring decoded = decode_utf8(character);
  return decoded.size() == 1 && is_space(decoded[0]);
}

}  // namespace

std::string_view without_leading_spaces(std::string_view text) {
  while (!text.empty()) {
    const std::size_t first = first_bytes(text);
    if (!is_one_space(text.substr(0, first))) break;
    text.remove_prefix(first);
  }
  return text;
}

std::string_view without_trailing_spaces(std::string_view text) {
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && continues_character(text[last])) --last;
    if (!is_one_space(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

}  // namespace reelmesh
