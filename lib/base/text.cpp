#include "base/text.hpp"

#include "base/utf8.hpp"

namespace reelmesh {
namespace {

// Whether a UTF-8 character is one that printable_lines() leaves out.
bool changes_terminal(std::string_view character) {
  if (character.size() == 1) {
    const auto byte = static_cast<unsigned char>(character.front());
    return (byte < ' ' && byte != '\n') || byte == 0x7f;
  }
  const auto within = [&](std::string_view first, std::string_view last) {
    return character.size() == first.size() && first <= character && character <= last;
  };
  return within("\u0080", "\u009f") || within("\u061c", "\u061c") || within("\u200e", "\u200f") ||
         within("\u2028", "\u202e") || within("\u2066", "\u2069");
}

}  // namespace

std::string printable_lines(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, utf8_length(text)));
    if (changes_terminal(character)) {
      printable += ' ';
    } else {
      printable += character;
    }
    text.remove_prefix(character.size());
  }
  return printable;
}

}  // namespace reelmesh
