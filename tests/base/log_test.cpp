#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace reelmesh {
namespace {

constexpr const char* rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                          "SLURM_PROCID"};

class Log : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : rank_variables) unsetenv(name);
    log::set_rank(LaunchedRank{0});
  }
  void TearDown() override { SetUp(); }
};

TEST_F(Log, LaunchRankPrefersTheMpiLauncherToSlurm) {
  EXPECT_EQ(log::launch_rank(), LaunchedRank{0});
  setenv("SLURM_PROCID", "3", 1);
  EXPECT_EQ(log::launch_rank(), LaunchedRank{3});
  setenv("PMIX_RANK", "2", 1);
  EXPECT_EQ(log::launch_rank(), LaunchedRank{2});
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  EXPECT_EQ(log::launch_rank(), LaunchedRank{1});
  setenv("OMPI_COMM_WORLD_RANK", "one", 1);
  EXPECT_EQ(log::launch_rank(), LaunchedRank{2}) << "what is no number is passed over";
}

TEST_F(Log, RankZeroSpeaksAndOthersOnlyForThemselves) {
  testing::internal::CaptureStderr();
  log::info("{} clips", 2);
  log::warning("the prompt is cut");
  log::say(log::Level::error, "bad");
  log::set_rank(LaunchedRank{3});
  log::info("unheard");
  log::warning("unheard");
  log::warning_here("slow");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "2 clips\n"
            "reelmesh: warning: the prompt is cut\n"
            "reelmesh: error: bad\n"
            "reelmesh: warning: rank 3: slow\n");
}

TEST_F(Log, WarningsAndErrorsAreOneLine) {
  testing::internal::CaptureStderr();
  log::info("a table\nof two lines");
  log::warning("time = Mon\n, \x1b[2Jfile");
  log::say(log::Level::error, "caf\xc3\xa9\r\n\tfull");
  log::say_here(log::Level::error, "no\x7fspace", LaunchedRank{2});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "a table\nof two lines\n"
            "reelmesh: warning: time = Mon ,  [2Jfile\n"
            "reelmesh: error: caf\xc3\xa9   full\n"
            "reelmesh: error: rank 2: no space\n");
}

TEST_F(Log, DropsWhatIsBelowItsLevel) {
  testing::internal::CaptureStderr();
  log::debug("not asked for");
  log::set_level(log::Level::warning);
  log::info("dropped");
  log::warning("kept");
  log::set_level(log::Level::info);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "reelmesh: warning: kept\n");
}

}  // namespace
}  // namespace reelmesh
