#pragma once
#include <cstddef>
#include <string_view>

namespace reelmesh {

/// The number of characters of the extended grapheme cluster with which `text`, not empty, begins:
/// a character with what belongs to it, such as marks (Unicode Standard Annex 29).
std::size_t grapheme_length(std::wstring_view text);

}  // namespace reelmesh
