#pragma once
#include <string>
#include <string_view>

namespace reelmesh {

/// Cleans a caption as in the training of Open-Sora's models: lower case, without URLs, file names
/// and codes, with plain quotes and dashes, single spaces, and a space after commas. The rules are
/// applied twice, as in the reference.
///
/// Source of the rules: the caption cleaning of DeepFloyd IF, which diffusers has too. Not covered,
/// so that such captions differ from those in training: HTML (tags and entities are kept, except
/// &quot; and &amp) and the repairs of ftfy (wrongly decoded text, ligatures, full-width letters,
/// combining accents). Digits of other scripts count as letters. Bytes that are not UTF-8 become
/// U+FFFD.
///
/// Throws Error(usage) for captions of more than 4000 characters, more than any text encoder takes.
std::string clean_caption(std::string_view caption);

}  // namespace reelmesh
