#pragma once
// What tokenizer.json does to a text before its words are divided into pieces, as the tokenizers
// library does it (github.com/huggingface/tokenizers, normalizers and pre_tokenizers).
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// A part of a text. `at_begin` is the number of its first characters that come from the first
/// character of the whole text: pieces at the begin may get a prefix.
struct TextPart {
  std::wstring text;
  std::size_t at_begin = 0;

  TextPart part(std::size_t begin, std::size_t end) const;
};

/// A table of sentencepiece by which characters are replaced (precompiled_charsmap).
class Charsmap {
 public:
  /// Error(data), beginning with `source`, if the table is damaged; see model_check.hpp.
  Charsmap(std::string table, const std::string& source);

  /// Replaces grapheme clusters of up to 5 bytes, and the characters of longer ones. As in the
  /// library a cluster is replaced by what the shortest text that it begins with becomes.
  void apply(TextPart& part) const;

 private:
  std::optional<std::wstring> replacement(std::wstring_view text) const;

  std::vector<std::uint32_t> trie_;
  std::string texts_;  ///< each ends in a zero byte
};

void strip_spaces(TextPart& part, bool left, bool right);
/// Replaces two spaces or more by one character.
void replace_spaces(TextPart& part, wchar_t by);

/// The words between white space.
std::vector<TextPart> words_of(const TextPart& part);

/// Spaces become marks, by which words are told apart.
struct Metaspace {
  enum class Prepend { always, first, never };

  wchar_t mark = L'\u2581';
  Prepend prepend = Prepend::always;  ///< a mark to parts without one: to all, or at the begin only
  bool split = true;                  ///< whether each mark begins a part

  std::vector<TextPart> apply(const TextPart& part) const;
};

/// The bytes of text in base64 (RFC 4648, with padding); nullopt if it is none.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace reelmesh
