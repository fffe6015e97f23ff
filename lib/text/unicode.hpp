#pragma once
// Character functions, most of them equal to those of Python's str. Properties of characters are
// those of utf8proc (Unicode 15 in Debian 12, 15.1 in Debian 13).
#include <string>
#include <string_view>

namespace reelmesh {

/// UTF-8 → code points. Invalid bytes become U+FFFD, one per maximal truncated sequence, like
/// bytes.decode("utf-8", "replace") in Python.
std::wstring decode_utf8(std::string_view bytes);
std::string encode_utf8(std::wstring_view text);

bool is_space(wchar_t c);  ///< str.isspace()
/// The property White_Space of Unicode, which unlike str.isspace() excludes U+001C to U+001F.
bool is_white_space(wchar_t c);
/// Marks that belong to the character before them: categories Mn, Mc and Me of Unicode.
bool is_combining(wchar_t c);
/// \w of regular expressions in Rust: letters, also in circles and squares, marks, decimal digits,
/// underscores and the like, joiners.
bool is_word_character(wchar_t c);
bool is_alphanumeric(wchar_t c);  ///< str.isalnum()
/// str.lower(): İ becomes two characters, and Σ at the end of a word becomes ς.
std::wstring lower_case(std::wstring_view text);

}  // namespace reelmesh
