#pragma once
// Whether texts are UTF-8. Names of files and environment variables are any bytes on Linux; HDF5
// and JSON take only UTF-8.
#include <cstddef>
#include <string>
#include <string_view>

namespace reelmesh {

/// Length of the UTF-8 character at the start of `text`, 0 if it is invalid (RFC 3629, table 3-7 of
/// the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

/// The text with U+FFFD in place of each byte that is not UTF-8.
std::string as_utf8(std::string_view text);

}  // namespace reelmesh
