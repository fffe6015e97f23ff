#include <gmock/gmock.h>

#include "given.hpp"
#include "job/options.hpp"
#include "options.hpp"
#include "scratch.hpp"

namespace reelmesh::app {
namespace {

class ConfigFile : public Scratch {
 protected:
  static std::vector<Given> read(std::string_view text) {
    write("job.cfg", text);
    std::vector<std::string> names;
    for (const Option& key : reelmesh::options()) {
      if (key.is_of(JobKind::clips)) names.emplace_back(key.name);
    }
    return read_config("job.cfg", "--config", names);
  }
  static std::string error(std::string_view text) {
    return error_of([&] { read(text); });
  }
};

TEST_F(ConfigFile, ReadsSectionsKeysAndComments) {
  const auto givens = read(
      "\xef\xbb\xbf# a byte order mark, then a comment\r\n"
      "model.path = above all sections\n"
      "\n"
      "  [ prompt ]  \r\n"
      "   # not this\n"
      "text = A red #1 bus = fast # and loud  \r\n"
      "negative=\n"
      "[sample]\n"
      "steps=5");
  ASSERT_EQ(givens.size(), 4U);
  EXPECT_EQ(givens[0].name, "model.path");
  EXPECT_EQ(givens[0].value, "above all sections");
  EXPECT_EQ(givens[1].name, "prompt.text");
  EXPECT_EQ(givens[1].value, "A red #1 bus = fast # and loud") << "'#' in a value stays";
  EXPECT_EQ(givens[1].where, "job.cfg:6: prompt.text");
  EXPECT_EQ(givens[2].name, "prompt.negative");
  EXPECT_EQ(givens[2].value, "");
  EXPECT_EQ(givens[3].name, "sample.steps");
  EXPECT_EQ(givens[3].value, "5");
}

TEST_F(ConfigFile, NamesTheLineAndTheNearestKey) {
  EXPECT_EQ(error("[sampel]\n"), "64: job.cfg:1: unknown section [sampel]; did you mean [sample]?");
  EXPECT_EQ(error("\n[sample]\nstep = 5\n"),
            "64: job.cfg:3: unknown key sample.step; did you mean sample.steps?");
  EXPECT_EQ(error("[model]\nsteps = 5\n"),
            "64: job.cfg:2: unknown key model.steps; did you mean sample.steps?");
  EXPECT_EQ(error("steps = 5\n"), "64: job.cfg:1: unknown key steps; did you mean sample.steps?");
  EXPECT_EQ(error("[train]\n"),
            "64: job.cfg:1: unknown section [train]; it is a section of reelmesh train");
  EXPECT_EQ(error("[photographs]\n"), "64: job.cfg:1: unknown section [photographs]");
  EXPECT_EQ(error("[sample]\nnum_inference_steps = 5\n"),
            "64: job.cfg:2: unknown key sample.num_inference_steps; did you mean sample.steps?");
  EXPECT_EQ(error("[sample]\rstep = 5\r"),
            "64: job.cfg:2: unknown key sample.step; did you mean sample.steps?");
  EXPECT_THAT(error("[device]\npower-limit = 1kW\n"),
              testing::HasSubstr("64: job.cfg:2: unknown key device.power-limit"));
  EXPECT_THAT(error("config = other.cfg\n"), testing::HasSubstr("unknown key config"));
}

TEST_F(ConfigFile, RefusesWhatIsNoKeyAndValue) {
  const std::string expected = ", expected '[section]', 'key = value' or '# comment'";
  EXPECT_EQ(error("[sample]\nsteps 5\n"), "64: job.cfg:2: found 'steps 5'" + expected);
  EXPECT_EQ(error("= 5\n"), "64: job.cfg:1: found '= 5'" + expected);
  EXPECT_EQ(error("[sample\n"), "64: job.cfg:1: found '[sample'" + expected);
  EXPECT_EQ(error("ok\xc3\n"), "65: job.cfg:1: found byte 2 (0xc3), expected UTF-8 text");
  EXPECT_EQ(error(std::string_view("\n[\0]\n", 5)),
            "65: job.cfg:2: found byte 1 (0x00), expected UTF-8 text");
}

TEST_F(ConfigFile, ErrorsInValuesNameFileAndLine) {
  write("job.cfg", "[sample]\nsteps = many\n");
  const char* argv[] = {"run", "--config", "job.cfg"};
  EXPECT_EQ(error_of([&] { parse_run(3, argv); }),
            "64: job.cfg:2: sample.steps: found 'many', expected a whole number from 1 to 1000");
  write("job.cfg", "[sample]\nsteps = 5\n[trace]\n[sample]\nsteps = 6\n");
  EXPECT_EQ(error_of([&] { parse_run(3, argv); }),
            "64: job.cfg:5: sample.steps: given twice ('5' and '6'), expected once");
}

}  // namespace
}  // namespace reelmesh::app
