// Exit status and output of the program; errors are reported once.
#include <gmock/gmock.h>

#include "scratch.hpp"
#include "shell.hpp"
#include "tensor/device.hpp"

namespace reelmesh::app {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string program = REELMESH_PROGRAM;
const std::string mpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
    "--bind-to none -n 4 ";

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class Program : public Scratch {};

TEST_F(Program, HelpsAndTellsItsVersion) {
  const Outcome help = shell(program + " --help");
  EXPECT_EQ(help.status, 0);
  for (const char* name : {"run", "plan", "inspect", "make-model"}) {
    EXPECT_THAT(help.text, HasSubstr(std::string("\n  ") + name + " "));
    const Outcome own = shell(program + " " + name + " --help");
    EXPECT_EQ(own.status, 0);
    EXPECT_THAT(own.text, HasSubstr("\nUsage: "));
    EXPECT_THAT(own.text, HasSubstr("\nExample"));
  }
  const Outcome version = shell(program + " --version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.text, StartsWith("reelmesh "));
  EXPECT_THAT(version.text, HasSubstr("backends: cpu"));
  EXPECT_EQ(version.text.find("CUDA: ") != std::string::npos, cuda_built) << version.text;
  EXPECT_THAT(version.text, HasSubstr("HDF5: 1."));
}

TEST_F(Program, RefusesSubcommandsThatItDoesNotHave) {
  const Outcome wrong = shell(program + " runn");
  EXPECT_EQ(wrong.status, 64);
  EXPECT_EQ(wrong.text,
            "reelmesh: error: unknown subcommand 'runn'; did you mean run? (see "
            "reelmesh --help)\n");
  EXPECT_EQ(shell(program).status, 64);
}

TEST_F(Program, SaysAWrongOptionOnce) {
  write("job.cfg", "[sample]\nstepz = 5\n");
  const Outcome alone = shell(program + " run --config job.cfg");
  EXPECT_EQ(alone.status, 64);
  EXPECT_EQ(alone.text,
            "reelmesh: error: job.cfg:2: unknown key sample.stepz; did you mean "
            "sample.steps?\n");
  const Outcome ranks = shell(mpirun + program + " run --config job.cfg");
  EXPECT_EQ(ranks.status, 64);
  EXPECT_EQ(count(ranks.text, "reelmesh: error: "), 1) << ranks.text;
}

TEST_F(Program, OneRankPrintsTheVersion) {
  const Outcome ranks = shell(mpirun + program + " --version");
  EXPECT_EQ(ranks.status, 0);
  EXPECT_EQ(count(ranks.text, "backends: cpu"), 1) << ranks.text;
}

TEST_F(Program, NoticesThatStandardOutputIsFull) {
  for (const char* command : {" --version", " make-model tiny-cogvideox model"}) {
    const Outcome full = shell(program + command + " 3>&1 >/dev/full 2>&3");
    EXPECT_EQ(full.status, 74) << command;
    EXPECT_EQ(full.text, "reelmesh: error: standard output cannot be written\n");
  }
}

TEST_F(Program, ShortensMessagesThatRepeatLongValues) {
  write("job.cfg", "[sample]\n" + std::string(1 << 20, 'x') + " = 5\n");
  const Outcome wrong = shell(program + " run --config job.cfg");
  EXPECT_EQ(wrong.status, 64);
  EXPECT_LT(wrong.text.size(), 2100U);
  EXPECT_THAT(wrong.text, StartsWith("reelmesh: error: job.cfg:2: unknown key sample.xxx"));
  EXPECT_THAT(wrong.text, HasSubstr("did you mean"));
}

}  // namespace
}  // namespace reelmesh::app
