#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace reelmesh {

/// Unicode's normalization form C: letters and their marks become composed letters, and marks stand
/// in canonical order (Unicode Standard Annex 15).
std::wstring composed(std::wstring_view text);

/// Calls use(name, value) for each "name=value " of a table of text_tables.hpp.
void for_each_entry(std::string_view table,
                    const std::function<void(std::string_view, std::string_view)>& use);
/// "2242.338" → U+2242 U+0338. The text of a table, or what it begins with.
std::wstring characters_of(std::string_view codes);

}  // namespace reelmesh
