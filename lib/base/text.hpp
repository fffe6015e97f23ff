#pragma once
// UTF-8 text, without decoding it.
#include <string_view>

namespace reelmesh {

/// Whether a byte of UTF-8 continues a character rather than beginning one.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

/// The first bytes of a text, at most `max_bytes`, without a partial character at the end.
constexpr std::string_view beginning_of(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && continues_character(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

/// The last bytes of a text, at most `max_bytes`, without a partial character at the start.
constexpr std::string_view end_of(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  text.remove_prefix(text.size() - max_bytes);
  while (!text.empty() && continues_character(text.front())) text.remove_prefix(1);
  return text;
}

}  // namespace reelmesh
