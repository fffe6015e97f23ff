#pragma once
#include <string>
#include <string_view>

namespace reelmesh {

/// A caption as Open-Sora's models were trained with: lower case, without addresses, file names and
/// codes, with simple quotes and dashes, single spaces, and a space after commas. Twice, as there.
///
/// Source of the rules: the caption cleaning of DeepFloyd IF, which diffusers has too. Not covered,
/// so that such captions come out otherwise than in training: HTML (tags and entities stay as they
/// are, but for &quot; and &amp) and the repairs of ftfy (wrongly decoded text, ligatures,
/// full-width letters, accents as characters of their own). Digits of other scripts count as
/// letters. Bytes that are not UTF-8 become U+FFFD.
///
/// Throws Error(usage) for captions of more than 4000 characters, which no text encoder takes.
std::string clean_caption(std::string_view caption);

}  // namespace reelmesh
