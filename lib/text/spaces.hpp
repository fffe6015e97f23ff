#pragma once
#include <string_view>

namespace reelmesh {

/// UTF-8 text without the characters at its start or its end that Python's str.isspace() is true
/// for, as str.lstrip() and str.rstrip() leave it.
std::string_view without_leading_spaces(std::string_view text);
std::string_view without_trailing_spaces(std::string_view text);

}  // namespace reelmesh
