#pragma once
// Requests to stop a job early: finish or abandon what can be repeated, save the rest, exit with
// status 75. A request only sets a flag; lib/pipeline looks at it and agrees with the other ranks.
#include <string>

namespace reelmesh::stop {

/// Why a job is to stop. Greater values win if ranks have different causes.
enum Cause : int {
  none = 0,  // 1 to 64: the number of a signal
  time_limit = 100,
};

/// From now on SIGTERM and SIGUSR1 are requests. A further one more than a second after the first
/// ends the process at once with status 75 (launchers may deliver one request as several signals).
void catch_signals();

/// Requests a stop, unless there is a request already. Any thread; also in signal handlers.
void request(int cause) noexcept;
/// The cause of the request; none without one.
int cause() noexcept;
inline bool requested() noexcept { return cause() != none; }
/// Seconds since the request; 0 without one.
double seconds_since_request() noexcept;
/// For tests: forgets the request.
void reset() noexcept;

/// "SIGTERM", "SIGUSR1", "the time limit (--max-time)"
std::string describe(int cause);

/// While such an object exists, this process has results in memory that a stop has to save, or is
/// writing a file.
class UnsavedWork {
 public:
  UnsavedWork() noexcept;
  ~UnsavedWork();
  UnsavedWork(const UnsavedWork&) = delete;
  UnsavedWork& operator=(const UnsavedWork&) = delete;
};
bool has_unsaved_work() noexcept;

}  // namespace reelmesh::stop
