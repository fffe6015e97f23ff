#include "base/stop.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/expect_error.hpp"

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
  // At the soft limit of CPU time the system sends one each second.
  EXPECT_EQ(status_after({{SIGXCPU, 1200}, {SIGXCPU, 0}}), SIGXCPU);
}

TEST_F(Stop, SignalsThatAreReleasedAreNoRequests) {
  EXPECT_EQ(status_after({}), 0);
  const pid_t child = fork();
  if (child == 0) {
    catch_signals();
    raise(SIGTERM);
    release_signals();
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

TEST_F(Stop, ATimeLimitIsARequest) {
  limit_time(600);
  EXPECT_FALSE(requested());
  leave_if_requested("the prompts are read");
  limit_time(0);
  EXPECT_EQ(cause(), time_limit);
  {
    const NeverLeave within_a_training;
    leave_if_requested("the prompts are read");
  }
  test::expect_error(
      Status::stopped, [] { leave_if_requested("the prompts are read"); },
      "stopped on request (the time limit (--max-time)) while the prompts are read: nothing has "
      "been made yet; run it again");
}

}  // namespace
}  // namespace reelmesh::stop
