#include "base/utf8.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"

namespace reelmesh {
namespace {

TEST(Utf8, KeepsWhatIsValid) {
  for (const char* text : {"", "a", "竹 «é» 🎬", "\n"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_EQ(as_utf8(text), text);
  }
}

TEST(Utf8, ReplacesEachInvalidByte) {
  EXPECT_FALSE(is_utf8("caf\xe9"));
  EXPECT_EQ(as_utf8("caf\xe9/a"), "caf\uFFFD/a");
  EXPECT_EQ(as_utf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD") << "a surrogate";
  EXPECT_EQ(as_utf8("\xc3"), "\uFFFD") << "truncated";
}

TEST(PrintableLines, HaveNothingThatChangesATerminal) {
  for (const char* text : {"", "a", "竹 «é» 🎬\nb", "\u00a0\u200d\u2027\u202f", "caf\xe9"}) {
    EXPECT_EQ(printable_lines(text), text);
  }
  for (const char* text :
       {"\x1b", "\x07", "\r", "\x7f", "\u0085", "\u009b", "\u061c", "\u202e", "\u2067"}) {
    EXPECT_EQ(printable_lines(std::string("a") + text + "[31mb\n"), "a [31mb\n");
  }
  EXPECT_EQ(one_line("a\nb\u009bc"), "a b c");
}

}  // namespace
}  // namespace reelmesh
