#include "comm/end_guard.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

struct Ended {
  int status = 0;
  std::string message;
};

// A process that is guarded for a second, and ends, or is stopped.
Ended guarded_process(bool ends) {
  std::array<int, 2> output{};
  EXPECT_EQ(pipe(output.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(output[1], STDERR_FILENO);
    guard_end(1);
    if (!ends) pause();
    _exit(3);
  }
  close(output[1]);
  Ended ended;
  EXPECT_EQ(waitpid(child, &ended.status, 0), child);
  std::array<char, 512> text{};
  ssize_t count = 0;
  while ((count = read(output[0], text.data(), text.size())) > 0) {
    ended.message.append(text.data(), static_cast<std::size_t>(count));
  }
  close(output[0]);
  return ended;
}

TEST(EndGuard, KillsAProcessThatDoesNotEnd) {
  if (test::world().size() > 1) return;  // needs no other ranks
  const Ended ended = guarded_process(false);
  EXPECT_TRUE(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGKILL) << ended.status;
  EXPECT_EQ(ended.message,
            "reelmesh: error: rank 0: the process has not ended 1.00 s after its work: it was "
            "stopped. All files are written; it is killed\n");
}

TEST(EndGuard, LeavesOneAloneThatEnds) {
  if (test::world().size() > 1) return;  // needs no other ranks
  const Ended ended = guarded_process(true);
  EXPECT_TRUE(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 3) << ended.status;
  EXPECT_EQ(ended.message, "");
}

}  // namespace
}  // namespace reelmesh::comm
