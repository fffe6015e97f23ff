#include "base/stop.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "base/error.hpp"

namespace reelmesh::stop {
namespace {

std::atomic<int> current_cause{none};
std::atomic<std::int64_t> requested_ns{0};
std::atomic<int> unsaved{0};

static_assert(std::atomic<int>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

// clock_gettime may be called in signal handlers.
std::int64_t monotonic_ns() noexcept {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void on_signal(int signal) {
  if (!requested()) {
    request(signal);
  } else if (seconds_since_request() > 1) {
    _exit(static_cast<int>(Status::stopped));
  }
}

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes of libraries go on
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
}

void request(int cause) noexcept {
  int expected = none;
  requested_ns.store(requested() ? requested_ns.load() : monotonic_ns());
  current_cause.compare_exchange_strong(expected, cause);
}

int cause() noexcept { return current_cause.load(); }

double seconds_since_request() noexcept {
  return requested() ? 1e-9 * static_cast<double>(monotonic_ns() - requested_ns.load()) : 0;
}

void reset() noexcept { current_cause.store(none); }

std::string describe(int cause) {
  switch (cause) {
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case time_limit:
      return "the time limit (--max-time)";
    default:
      return fmt::format("signal {}", cause);
  }
}

UnsavedWork::UnsavedWork() noexcept { unsaved.fetch_add(1); }
UnsavedWork::~UnsavedWork() { unsaved.fetch_sub(1); }

bool has_unsaved_work() noexcept { return unsaved.load() > 0; }

}  // namespace reelmesh::stop
