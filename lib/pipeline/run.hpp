#pragma once
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/watchdog.hpp"
#include "job/job.hpp"

namespace reelmesh::pipeline {

/// The program, as recorded in the results.
struct ProgramInfo {
  std::string name, version, revision;
  bool changed = false;  ///< the source had changes that were not committed
  std::string compiler, compiler_flags, build_type;
  std::vector<std::string> libraries;  ///< "Open MPI 4.1.4": those that are loaded

  /// "0.1.0 (1234abcd)", "0.1.0 (1234abcd, changed)"
  std::string described() const;
};

/// Makes the clips of a job on the ranks of a group. All ranks make the same call and return the
/// same status: ok; data if some clips have failed; or stopped if stop::requested() on any rank
/// before all clips were made; the clips in progress are saved then. Errors are thrown, on one rank
/// or on all. watchdog: as in make_clips; without one there is no status.json. Collective.
Status run(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
           comm::Watchdog* watchdog);

}  // namespace reelmesh::pipeline
