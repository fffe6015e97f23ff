#pragma once
// Errors carry the exit status of the program (numbers as in sysexits.h).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/launched_rank.hpp"

namespace reelmesh {

/// Exit status of the program; also the kind of an Error.
enum class Status : int {
  ok = 0,
  usage = 64,        ///< a wrong option or key
  data = 65,         ///< a file has invalid content
  no_input = 66,     ///< an input is missing
  unavailable = 69,  ///< the job does not fit ranks or memory, or a device or library is missing
  internal = 70,
  cannot_create = 73,
  io = 74,
  stopped = 75,   ///< stopped early on request; run again to continue
  watchdog = 76,  ///< a rank is lost or hangs
};

/// One failure. Its message says what was found, what was expected, and where (file or option).
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& message, std::optional<LaunchedRank> rank = std::nullopt)
      : std::runtime_error(message), status_(status), rank_(rank) {}
  Status status() const { return status_; }
  /// The rank on which it happened; empty: the rank that throws.
  std::optional<LaunchedRank> rank() const { return rank_; }

 private:
  Status status_;
  std::optional<LaunchedRank> rank_;
};

template <class... Args>
[[noreturn]] void fail(Status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(status, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(status, message) unless `condition` holds.
template <class... Args>
void require(bool condition, Status status, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(status, format, std::forward<Args>(args)...);
}

/// Calls work(), whose Errors then begin with "WHERE: ".
template <class Work>
void errors_begin_with(const std::string& where, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.status(), where + ": " + error.what(), error.rank());
  }
}

/// Throws Error(internal) unless `condition` holds: a violated precondition, so a bug.
template <class... Args>
void expect(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(Status::internal, format, std::forward<Args>(args)...);
}

}  // namespace reelmesh
