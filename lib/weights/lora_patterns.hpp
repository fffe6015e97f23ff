#pragma once
// Values of some modules of a LoRA, as rank_pattern and alpha_pattern of PEFT's LoraConfig.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// Whether `key` is the name of a module, or its end after a dot: "to_q" names
/// "transformer_blocks.0.attn1.to_q".
inline bool names_module(std::string_view key, std::string_view module) {
  if (!module.ends_with(key)) return false;
  return module.size() == key.size() || module[module.size() - key.size() - 1] == '.';
}

/// A value of the modules that the key names.
template <class T>
struct LoraPattern {
  std::string key;
  T value{};
};
template <class T>
using LoraPatterns = std::vector<LoraPattern<T>>;

/// The value of the first key that names the module.
template <class T>
T value_of_module(const LoraPatterns<T>& patterns, std::string_view module, T otherwise) {
  for (const LoraPattern<T>& pattern : patterns) {
    if (names_module(pattern.key, module)) return pattern.value;
  }
  return otherwise;
}

/// "ff.net.2=16,to_q=4", with another separator if given.
template <class T>
std::string pattern_text(const LoraPatterns<T>& patterns, std::string_view separator = ",") {
  std::string text;
  for (const LoraPattern<T>& pattern : patterns) {
    text += fmt::format("{}{}={}", text.empty() ? "" : separator, pattern.key, pattern.value);
  }
  return text;
}

}  // namespace reelmesh
