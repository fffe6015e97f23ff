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

/// A text from outside for a terminal or a log: characters that would change the terminal or the
/// direction of writing become spaces (C0 and C1 controls, U+061C, U+200E, U+200F, U+2028 to
/// U+202E, U+2066 to U+2069). Line ends stay.
std::string printable_lines(std::string_view text);

/// The same for one line: line ends, such as those in reasons that libraries give or in paths,
/// become spaces, too.
inline std::string one_line(std::string_view text) {
  std::string line = printable_lines(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

/// With the letters A to Z in lower case.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
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
