#pragma once
// One message per failure, once, from one rank.
#include <optional>
#include <string>

#include "base/error.hpp"

namespace reelmesh::app {

struct Failure {
  Status status;
  std::string message;
  std::optional<int> rank;  ///< as in Error
};

/// What the exception being handled means to the user. Call within a catch block.
Failure current_failure();

/// For a rank on its own way out: gives lower ranks, which may have the same failure, the time to
/// report it and end the job first. Returns at once on rank 0; elsewhere only if this rank is still
/// alive.
void wait_for_lower_ranks(int rank);

}  // namespace reelmesh::app
