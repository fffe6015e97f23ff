#include "help.hpp"

#include <gmock/gmock.h>

namespace reelmesh::app {
namespace {

using testing::HasSubstr;

const std::vector<HelpSection> sections{
    {"First", {{"--short N", "one two three"}, {"--a-name-longer-than-its-column", "four"}}},
    {"Second", {{"--other", "five [default: six seven]"}}}};

TEST(Help, AlignsDescriptionsAndWrapsThem) {
  EXPECT_EQ(format_help(sections, {.columns = 22, .bold_titles = false}),
            "First\n"
            "  --short N  one two\n"
            "             three\n"
            "  --a-name-longer-than-its-column\n"
            "             four\n"
            "\n"
            "Second\n"
            "  --other    five\n"
            "             [default:\n"
            "             six\n"
            "             seven]\n");
}

TEST(Help, FillsWideTerminals) {
  EXPECT_THAT(format_help(sections, {.columns = 80, .bold_titles = false}),
              HasSubstr("  --other    five [default: six seven]\n"));
}

TEST(Help, WrapsAfterADefaultAndWithinALongOne) {
  const std::vector<HelpSection> with_defaults{
      {"Title",
       {{"--a", "one [default: 2]. three four five"}, {"--b", "[default: one two three]"}}}};
  EXPECT_EQ(format_help(with_defaults, {.columns = 22, .bold_titles = false}),
            "Title\n"
            "  --a  one\n"
            "       [default: 2].\n"
            "       three four five\n"
            "  --b  [default: one\n"
            "       two three]\n");
}

TEST(Help, WritesTitlesInBoldOnTerminals) {
  EXPECT_THAT(format_help(sections, {.columns = 80, .bold_titles = true}),
              HasSubstr("\x1b[1mFirst\x1b[0m\n"));
}

TEST(Help, PutsAPageTogether) {
  EXPECT_EQ(format_page({.purpose = "Does\nthis.",
                         .usage = "reelmesh this A\n    [MORE]",
                         .notes = "A note.",
                         .sections = {{"Options", {{"--b", "c"}}}},
                         .examples = "reelmesh this \\\n    1\nreelmesh this 2"},
                        {}),
            "Does\nthis.\n\n"
            "Usage: reelmesh this A\n           [MORE]\n\n"
            "A note.\n\n"
            "Options\n  --b  c\n\n"
            "Examples\n  reelmesh this \\\n      1\n  reelmesh this 2\n");
  EXPECT_EQ(format_page({.purpose = "This.", .usage = "a", .examples = "b"}, {}),
            "This.\n\nUsage: a\n\nExamples\n  b\n");
}

}  // namespace
}  // namespace reelmesh::app
