// Properties of characters, as Python's str, Rust's regex and Unicode's annexes define them.
#include "text/unicode.hpp"

#include <gtest/gtest.h>

#include "text/compose.hpp"
#include "text/graphemes.hpp"

namespace reelmesh {
namespace {

TEST(Alphanumeric, FollowsPython) {
  for (const wchar_t c : {L'a', L'7', L'\u00bd', L'\u00b2', L'\u2167', L'\u4e00', L'\u0e01'}) {
    EXPECT_TRUE(is_alphanumeric(c)) << static_cast<int>(c);
  }
  for (const wchar_t c : {L'_', L'\u0301', L'\u0903', L'\u24b6', L'-', L'\u200d'}) {
    EXPECT_FALSE(is_alphanumeric(c)) << static_cast<int>(c);
  }
}

TEST(WordCharacter, FollowsRust) {
  for (const wchar_t c : {L'a', L'7', L'_', L'\u0301', L'\u0903', L'\u24b6', L'\u203f', L'\u200d',
                          L'\U0001f130', L'\u2167'}) {
    EXPECT_TRUE(is_word_character(c)) << static_cast<int>(c);
  }
  for (const wchar_t c : {L'-', L' ', L'\u00bd', L'\u00b2', L'\u2460', L'\U0001f600'}) {
    EXPECT_FALSE(is_word_character(c)) << static_cast<int>(c);
  }
}

TEST(GraphemeLength, CountsWhatBelongsToACharacter) {
  const std::pair<std::size_t, std::wstring_view> cases[] = {
      {1, L"ab"},
      {3, L"a\u0301\u0323b"},
      {2, L"\r\na"},
      {1, L"\n\u0301"},
      {2, L"\u0600a"},                                   // a sign before its number
      {3, L"\u1100\u1161\u11a8\u1100"},                  // one syllable
      {2, L"\U0001f1eb\U0001f1f7\U0001f1eb\U0001f1f7"},  // one flag of two
      {3, L"\U0001f469\u200d\U0001f680a"},               // joined emoji
      {1, L"\u0301"}};
  for (const auto& [length, text] : cases) EXPECT_EQ(grapheme_length(text), length);
}

TEST(ComposedWithoutVariants, IsFormKC) {
  EXPECT_EQ(composed_without_variants(L"\uff21\u3000\uffe3"), L"A  \u0304");
  EXPECT_EQ(composed_without_variants(L"\uff76\uff9e"), L"\u30ac");
  EXPECT_EQ(composed_without_variants(L""), L"");
}

}  // namespace
}  // namespace reelmesh
