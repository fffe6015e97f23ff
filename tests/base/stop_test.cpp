#include "base/stop.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace reelmesh::stop {
namespace {

class Stop : public testing::Test {
 protected:
  void TearDown() override { reset(); }
};

TEST_F(Stop, KeepsTheFirstCause) {
  EXPECT_FALSE(requested());
  EXPECT_EQ(seconds_since_request(), 0);
  request(time_limit);
  request(SIGTERM);
  EXPECT_TRUE(requested());
  EXPECT_EQ(cause(), time_limit);
  EXPECT_GE(seconds_since_request(), 0);
  EXPECT_LT(seconds_since_request(), 60);
}

TEST_F(Stop, CountsUnsavedWork) {
  EXPECT_FALSE(has_unsaved_work());
  {
    const UnsavedWork one, two;
    EXPECT_TRUE(has_unsaved_work());
  }
  EXPECT_FALSE(has_unsaved_work());
}

// The exit status of a child that gets the signals, each followed by a pause.
int status_after(const std::vector<std::pair<int, int>>& signals_and_milliseconds) {
  const pid_t child = fork();
  if (child == 0) {
    catch_signals();
    for (const auto& [signal, pause] : signals_and_milliseconds) {
      raise(signal);
      usleep(static_cast<useconds_t>(1000 * pause));
    }
    _exit(cause());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(Stop, SignalsAreRequestsAndALaterOneEndsTheProcess) {
  EXPECT_EQ(status_after({{SIGUSR1, 0}}), SIGUSR1);
  EXPECT_EQ(status_after({{SIGTERM, 0}, {SIGTERM, 0}}), SIGTERM);  // one request, delivered twice
  EXPECT_EQ(status_after({{SIGTERM, 1200}, {SIGUSR1, 0}}), 75);
}

}  // namespace
}  // namespace reelmesh::stop
