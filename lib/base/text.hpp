#pragma once
// UTF-8 text, without decoding it.
#include <algorithm>
#include <string>
#include <string_view>

namespace reelmesh {

/// Whether a byte of UTF-8 continues a character rather than beginning one.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

/// A text for one line of a terminal or a log: control characters, such as line ends in reasons
/// that libraries give or in paths, become spaces.
inline std::string one_line(std::string text) {
  const auto controls = [](char byte) { return (byte >= 0 && byte < ' ') || byte == 0x7f; };
  std::ranges::replace_if(text, controls, ' ');
  return text;
}

/// The first bytes of a text, at most `max_bytes`, without a partial character at the end.
constexpr std::string_view text_prefix(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && continues_character(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

/// The last bytes of a text, at most `max_bytes`, without a partial character at the start.
constexpr std::string_view text_suffix(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  text.remove_prefix(text.size() - max_bytes);
  while (!text.empty() && continues_character(text.front())) text.remove_prefix(1);
  return text;
}

}  // namespace reelmesh
