#pragma once
// One message per failure, once, from one rank.
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/watchdog.hpp"

namespace reelmesh::app {

struct Failure {
  Status status;
  std::string message;
  std::optional<LaunchedRank> rank;  ///< as in Error
};

/// A stop on request is no error.
inline log::Level failure_level(const Failure& failure) {
  return failure.status == Status::stopped ? log::Level::info : log::Level::error;
}

/// Status and message for the exception being handled. Call within a catch block.
Failure current_failure();

/// Waits 2 to 5 s, increasing with the rank, so that a lower rank with the same failure can
/// report it and end the job first. Returns at once on rank 0.
void wait_for_lower_ranks();

/// The same for a failure within a job. If it is known on which rank it happened, that rank does
/// not wait, and the others wait until it has ended the job, but for at most 10 s. If it happened
/// on several ranks at once, the first of them that asks the watchdog does not wait.
void wait_for_other_reports(const Failure& failure, comm::Watchdog& watchdog);

}  // namespace reelmesh::app
