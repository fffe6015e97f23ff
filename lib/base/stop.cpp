#include "base/stop.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>

#include "base/error.hpp"

namespace reelmesh::stop {
namespace {

std::atomic<int> current_cause{none};
std::atomic<std::int64_t> requested_ns{0};
std::atomic<std::int64_t> limit_ns{std::numeric_limits<std::int64_t>::max()};
std::atomic<int> unsaved{0}, never_leaves{0};
std::atomic<int> plans_requested{0}, plans_made{0};

// The larger of both numbers stays.
void raise_to(std::atomic<int>& value, int number) noexcept {
  int before = value.load();
  while (before < number && !value.compare_exchange_weak(before, number)) {
  }
}

static_assert(std::atomic<int>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

// clock_gettime may be called in signal handlers.
std::int64_t monotonic_ns() noexcept {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

constexpr std::array signals{SIGTERM, SIGINT, SIGUSR1, SIGXCPU};

void on_signal(int signal) {
  if (!requested()) {
    request(signal);
  } else if (signal != SIGXCPU && seconds_since_request() > 1) {
    _exit(static_cast<int>(Status::stopped));
  }
}

}  // namespace

void catch_signals() {
  // oneDNN's products in float32 without AVX-512 keep values below the top of the stack, more of
  // them than the 128 bytes that handlers of signals leave alone (seen with 2.6). So the handler
  // has a stack of its own. Signals for the process go to its first thread, which calls this.
  static std::array<std::byte, 1 << 16> memory;
  stack_t stack = {}, present = {};
  if (sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) != 0) {
    stack.ss_sp = memory.data();
    stack.ss_size = memory.size();
    sigaltstack(&stack, nullptr);
  }
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // reads and writes of libraries go on
  sigemptyset(&action.sa_mask);
  for (const int signal : signals) sigaction(signal, &action, nullptr);
}

void release_signals() {
  for (const int signal : signals) std::signal(signal, SIG_DFL);
  const int arrived = current_cause.load();
  if (arrived != none && arrived != time_limit) std::raise(arrived);
}

void limit_time(double seconds) noexcept {
  limit_ns = monotonic_ns() + static_cast<std::int64_t>(1e9 * std::clamp(seconds, 0.0, 1e9));
}

void request(int cause) noexcept {
  int expected = none;
  if (current_cause.load() == none) requested_ns.store(monotonic_ns());
  current_cause.compare_exchange_strong(expected, cause);
}

int cause() noexcept {
  const int found = current_cause.load();
  if (found != none || monotonic_ns() < limit_ns.load()) return found;
  request(time_limit);
  return current_cause.load();
}

void leave_if_requested(const char* work) {
  require(!requested() || never_leaves.load() > 0, Status::stopped,
          "stopped on request ({}) while {}: nothing has been made yet; run it again",
          cause_text(cause()), work);
}

double seconds_since_request() noexcept {
  return requested() ? 1e-9 * static_cast<double>(monotonic_ns() - requested_ns.load()) : 0;
}

void reset() noexcept {
  current_cause.store(none);
  limit_ns = std::numeric_limits<std::int64_t>::max();
  plans_requested = plans_made = 0;
}

void request_new_plan() noexcept { raise_to(plans_requested, plans_made.load() + 1); }
int new_plans_requested() noexcept { return plans_requested.load(); }
void note_new_plan(int number) noexcept { raise_to(plans_requested, number); }
void new_plan_made(int number) noexcept { raise_to(plans_made, number); }
bool new_plan_requested() noexcept { return plans_requested.load() > plans_made.load(); }

std::string cause_text(int cause) {
  switch (cause) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGXCPU:
      return "SIGXCPU, the limit of CPU time";
    case time_limit:
      return "the time limit (--max-time)";
    default:
      return fmt::format("signal {}", cause);
  }
}

NeverLeave::NeverLeave() noexcept { never_leaves.fetch_add(1); }
NeverLeave::~NeverLeave() { never_leaves.fetch_sub(1); }

UnsavedWork::UnsavedWork() noexcept { unsaved.fetch_add(1); }
UnsavedWork::~UnsavedWork() { unsaved.fetch_sub(1); }

bool has_unsaved_work() noexcept { return unsaved.load() > 0; }

}  // namespace reelmesh::stop
