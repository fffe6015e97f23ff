#pragma once
#include "base/error.hpp"
#include "comm/watchdog.hpp"
#include "job/job_record.hpp"

namespace reelmesh::pipeline {

/// What a job says: also its plan, what it took and why it stops; or warnings only.
enum class Said { all, problems };

/// Makes the clips of a job on the ranks of a group. All ranks make the same call and return the
/// same status: ok; data if some clips have failed; or stopped if stop::requested() on any rank
/// before all clips were made; the clips in progress are saved then. Errors are thrown, on one rank
/// or on all. watchdog: as in make_clips; without one there is no status.json. Collective.
Status run(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
           comm::Watchdog* watchdog, Said said = Said::all);

}  // namespace reelmesh::pipeline
