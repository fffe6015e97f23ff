// Prompts of Wan, cleaned as by diffusers with ftfy.
#include "text/clean_prompt.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/expect_error.hpp"
#include "text/compose.hpp"
#include "text/unicode.hpp"

namespace reelmesh {
namespace {

TEST(CleanPrompt, EqualsFtfyWithoutItsRepairs) {
  std::ifstream file(std::string(REELMESH_TEST_DATA) + "/prompt_cleaning.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 600U);
  for (const auto& prompt : cases) {
    EXPECT_EQ(clean_prompt(prompt["text"].get<std::string>()).text,
              prompt["cleaned"].get<std::string>())
        << prompt["text"].dump(-1, ' ', true);
  }
}

TEST(CleanPrompt, QuotesWronglyDecodedText) {
  for (const char* text : {"sch\u00c3\u00b6n", "a caf\u00c3\u00a9", "it\u00e2\u20ac\u2122s"}) {
    EXPECT_EQ(clean_prompt(text).suspect, text);
  }
  EXPECT_EQ(clean_prompt("a long prompt, which is sch\u00c3\u00b6n and then goes on").suspect,
            "which is sch\u00c3\u00b6n and then");
  for (const char* text : {"", "sch\u00f6n", "\u00c2ge d'or", "\u8fc7\u66dd", "na\u00efve"}) {
    EXPECT_EQ(clean_prompt(text).suspect, "");
  }
}

TEST(CleanPrompt, TakesAnyBytes) {
  EXPECT_EQ(clean_prompt("a \xff b\xc3").text, "a \ufffd b\ufffd");
  EXPECT_EQ(clean_prompt(std::string(20'000, 'x')).text.size(), 20'000U);
  test::expect_error(
      Status::usage, [] { clean_prompt(std::string(20'001, 'x')); }, "20001 characters", "20000");
}

// Normalization form C of characters after and before a mark, by its definition: equal texts
// have equal forms, and the form of a form is itself.
TEST(Composed, IsStable) {
  for (wchar_t c = 1; c < 0x3200; ++c) {
    const std::wstring once = composed(std::wstring{L'a', c, wchar_t{0x301}, wchar_t{0x323}});
    ASSERT_EQ(composed(once), once) << static_cast<int>(c);
  }
  EXPECT_EQ(composed(L"q\u0307\u0323"), L"q\u0323\u0307");
  EXPECT_EQ(composed(L"\u1100\u1161\u11a8"), L"\uac01");
  EXPECT_EQ(composed(L"\u0344\u0958"), L"\u0308\u0301\u0915\u093c");
}

}  // namespace
}  // namespace reelmesh
