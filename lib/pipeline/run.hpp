#pragma once
#include "base/error.hpp"
#include "comm/watchdog.hpp"
#include "plan/job.hpp"

namespace reelmesh::pipeline {

/// The program, as recorded in the results.
struct ProgramInfo {
  std::string name, version, revision;
};

/// Makes the clips of a job on the ranks of a group. All ranks make the same call and return the
/// same status: ok; data if some clips have failed; or stopped if stop::requested() on any rank
/// before all clips were made; the clips in work are saved then. Errors are thrown, on one rank or
/// on all. watchdog: as in make_clips; without one there is no status.json. Collective.
Status run(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
           comm::Watchdog* watchdog);

}  // namespace reelmesh::pipeline
