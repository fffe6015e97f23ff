#pragma once
#include <string>
#include <string_view>

namespace reelmesh {

/// A prompt as a model takes it.
struct CleanPrompt {
  std::string text;
  /// What looks like UTF-8 that was decoded as Latin-1 or Windows-1252 ("Ã¶" for "ö"), with the
  /// characters around it; empty if nothing does. ftfy would repair it.
  std::string suspect;
};

/// Cleans a prompt as prompt_clean of diffusers' Wan pipelines: ftfy.fix_text with its default
/// settings, html.unescape twice, and single spaces. Left out is ftfy's repair of wrongly decoded
/// text. Bytes that are not UTF-8 become U+FFFD. Source of the rules: ftfy 6.3, Python 3.11.
///
/// Throws Error(usage) for prompts of more than 20,000 characters, more than any text encoder takes
/// (nested entities take quadratic time).
CleanPrompt clean_prompt(std::string_view prompt);

}  // namespace reelmesh
