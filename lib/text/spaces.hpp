#pragma once
#include <string_view>

namespace reelmesh {

/// UTF-8 text without leading or trailing spaces, as Python's str.lstrip() and str.rstrip() return
/// it: spaces are the characters for which str.isspace() is true.
std::string_view without_leading_spaces(std::string_view text);
std::string_view without_trailing_spaces(std::string_view text);

}  // namespace reelmesh
