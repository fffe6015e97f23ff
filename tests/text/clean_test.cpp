#include "text/clean.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/expect_error.hpp"
#include "text/unicode.hpp"

namespace reelmesh {
namespace {

// Results of the released Open-Sora code. Captions that need ftfy or an HTML parser are not marked
// "plain" in the file, and are left out.
TEST(CleanCaption, CleansAsTheReferenceWhatIsPlain) {
  std::ifstream file(REELMESH_TEST_DATA "/opensora/caption_cleaning.json");
  const auto pairs = nlohmann::json::parse(file);
  int plain = 0;
  for (const auto& pair : pairs) {
    if (!pair.at("plain").get<bool>()) continue;
    ++plain;
    const auto text = pair.at("text").get<std::string>();
    EXPECT_EQ(clean_caption(text), pair.at("cleaned").get<std::string>()) << text;
  }
  EXPECT_GT(plain, 200);
}

TEST(CleanCaption, TakesAnyBytes) {
  EXPECT_EQ(clean_caption("\xff\xfe fox"), "\uFFFD\uFFFD fox");
  EXPECT_EQ(clean_caption(std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(clean_caption("%"), "%");
  EXPECT_EQ(clean_caption("%4"), "%4");
}

TEST(CleanCaption, CountsRaisedDigitsToTheWord) {
  EXPECT_EQ(clean_caption("12ab34\u00b2 and 12ab34"), "12ab34\u00b2 and");
}

TEST(CleanCaption, RefusesEndlessCaptions) {
  const auto repeated = [](const std::string& piece, std::size_t characters) {
    std::string text;
    while (text.size() + piece.size() <= characters) text += piece;
    return text;
  };
  EXPECT_EQ(clean_caption(repeated("a red fox runs. ", 4000)).size(), 3999U);
  // Repetitions that make some of the regular expressions backtrack.
  for (const char* piece : {"a", "1", " ", "a.", "-", "a1", ". ", "\u00e9"}) {
    EXPECT_NO_THROW(clean_caption(repeated(piece, 500))) << piece;
  }
  reelmesh::test::expect_error(
      Status::usage, [] { clean_caption(std::string(4001, 'a')); }, "4001", "4000");
}

TEST(Utf8, IsDecodedAsPythonDoes) {
  EXPECT_EQ(decode_utf8("a\u00e9\u4e00\U0001F600"), L"a\u00e9\u4e00\U0001F600");
  // bytes.decode("utf-8", "replace")
  EXPECT_EQ(decode_utf8("\xe4\xbd|"), L"\ufffd|");
  EXPECT_EQ(decode_utf8("\xf0\x90|\x80"), L"\ufffd|\ufffd");
  EXPECT_EQ(decode_utf8("\xc0\xaf"), L"\ufffd\ufffd");            // overlong encoding of /
  EXPECT_EQ(decode_utf8("\xed\xa0\x80"), L"\ufffd\ufffd\ufffd");  // an unpaired surrogate
  EXPECT_EQ(decode_utf8("\xf4\x90\x80\x80"), L"\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(encode_utf8(L"a\u00e9\u4e00\U0001F600"), "a\u00e9\u4e00\U0001F600");
}

TEST(LowerCase, FollowsPython) {
  EXPECT_EQ(lower_case(L"A\u00c9\u0416\u0130"), L"a\u00e9\u0436i\u0307");
  EXPECT_EQ(lower_case(L"\u03a3\u0391\u03a3 \u03a3"), L"\u03c3\u03b1\u03c2 \u03c3");
}

}  // namespace
}  // namespace reelmesh
