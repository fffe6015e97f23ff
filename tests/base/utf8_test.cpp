#include "base/utf8.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace reelmesh
