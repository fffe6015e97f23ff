#pragma once
#include <cstddef>
#include <string_view>

namespace reelmesh {

/// The number of characters of the extended grapheme cluster with which `text`, not empty, begins:
/// a character with the marks that belong to it (Unicode Standard Annex 29). Clusters of Hangul
/// jamo, of flags, of joined emoji and of Indic conjuncts are divided into their parts.
std::size_t grapheme_length(std::wstring_view text);

}  // namespace reelmesh
