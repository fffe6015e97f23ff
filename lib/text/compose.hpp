#pragma once
#include <string>
#include <string_view>

namespace reelmesh {

/// Unicode's normalization form C: letters and their marks become composed letters, and marks stand
/// in canonical order (Unicode Standard Annex 15). text: no surrogates.
std::wstring composed(std::wstring_view text);

/// Form KC: the same after characters that are variants of others, for instance in width, have
/// become these.
std::wstring composed_without_variants(std::wstring_view text);

}  // namespace reelmesh
