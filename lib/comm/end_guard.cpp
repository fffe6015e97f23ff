#include "comm/end_guard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/units.hpp"

namespace reelmesh::comm {

void guard_end(double seconds) {
  const std::string message = fmt::format(
      "reelmesh: error: rank 0: the process has not ended {} after its work: it was stopped. All "
      "files are written; it is killed\n",
      format_seconds(seconds));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  const pid_t guarded = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {  // only calls that may be made in a copy of a process with several threads
    ::close(ends[1]);
    // A second at a time, so that time in which the whole job is suspended does not count.
    for (; seconds > 0; --seconds) {
      pollfd ended{ends[0], POLLIN, 0};
      if (::poll(&ended, 1, 1000) == 1) ::_exit(0);
    }
    (void)!::write(STDERR_FILENO, message.data(), message.size());
    ::kill(guarded, SIGKILL);
    ::_exit(0);
  }
  ::close(ends[0]);  // the other end closes with this process
}

}  // namespace reelmesh::comm
