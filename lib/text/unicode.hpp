#pragma once
// Characters as Python's str has them.
#include <string>
#include <string_view>

namespace reelmesh {

/// UTF-8 → code points. Bytes that are not UTF-8 become U+FFFD, one for each part that could have
/// begun a character, as bytes.decode("utf-8", "replace") does it.
std::wstring decode_utf8(std::string_view bytes);
std::string encode_utf8(std::wstring_view text);

bool is_space(wchar_t c);  ///< str.isspace()
/// str.isalnum(), by the tables of the C library, which count some vowel signs as letters, and
/// numbers of Latin texts that it leaves out.
bool is_alphanumeric(wchar_t c);
/// str.lower(): İ becomes two characters, and Σ at the end of a word ς.
std::wstring lower_case(std::wstring_view text);

}  // namespace reelmesh
