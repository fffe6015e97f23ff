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

/// From now on SIGTERM, SIGINT, SIGUSR1 and SIGXCPU (the soft limit of CPU time, which the system
/// repeats each second) are requests. A further one, but SIGXCPU, more than a second after the
/// first ends the process at once with status 75 (launchers may deliver one request as several
/// signals). To be called by the first thread.
void catch_signals();
/// Restores the default actions of these signals, and raises again the one that was received since
/// catch_signals(), if any.
void release_signals();

/// Requests a stop (time_limit) after so many seconds from now.
void limit_time(double seconds) noexcept;

/// Requests a stop, unless there is a request already. Any thread; also in signal handlers.
void request(int cause) noexcept;
/// The cause of the request; none without one.
int cause() noexcept;
inline bool requested() noexcept { return cause() != none; }
/// Seconds since the request; 0 without one.
double seconds_since_request() noexcept;
/// Error(stopped) if a stop is requested: for long work before anything is made, which need not be
/// agreed with other ranks. work: "the prompts are read".
void leave_if_requested(const char* work);
/// While such an object exists, leave_if_requested() does nothing: for work within a job that has
/// made something already.
class NeverLeave {
 public:
  NeverLeave() noexcept;
  ~NeverLeave();
  NeverLeave(const NeverLeave&) = delete;
  NeverLeave& operator=(const NeverLeave&) = delete;
};
/// For tests: forgets all requests and the limit.
void reset() noexcept;

/// Requests that all ranks leave what they do as if they were to stop, plan again for the memory
/// that is there now, and go on. They have numbers, so that a rank that hears of one after it has
/// been met does not take it for the next. Any thread.
void request_new_plan() noexcept;
/// The number of the last request; 0 without one.
int new_plans_requested() noexcept;
/// Another rank knows of this request.
void note_new_plan(int number) noexcept;
/// All requests up to this one are met.
void new_plan_made(int number) noexcept;
/// Whether one is still to be met.
bool new_plan_requested() noexcept;
/// Whether ranks are to leave what they do, to stop or to plan again.
inline bool leaving() noexcept { return requested() || new_plan_requested(); }

/// "SIGTERM", "SIGUSR1", "SIGXCPU, the limit of CPU time", "the time limit (--max-time)"
std::string cause_text(int cause);

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
