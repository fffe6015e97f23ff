#pragma once
// Character functions equal to those of Python's str.
#include <string>
#include <string_view>

namespace reelmesh {

/// UTF-8 → code points. Invalid bytes become U+FFFD, one per maximal truncated sequence, like
/// bytes.decode("utf-8", "replace") in Python.
std::wstring decode_utf8(std::string_view bytes);
std::string encode_utf8(std::wstring_view text);

bool is_space(wchar_t c);  ///< str.isspace()
/// Approximates str.isalnum() by the tables of the C library plus superscripts, fractions and
/// similar numbers. Differs for some vowel signs, which the C library counts as letters.
bool is_alphanumeric(wchar_t c);
/// str.lower(): İ becomes two characters, and Σ at the end of a word becomes ς.
std::wstring lower_case(std::wstring_view text);

}  // namespace reelmesh
