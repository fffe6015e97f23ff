#pragma once
#include "base/error.hpp"
#include "comm/watchdog.hpp"
#include "job/job_record.hpp"

namespace reelmesh::train {

/// Trains what job.train asks for on the ranks of a group, and writes it to job.output. All ranks
/// make the same call and return the same status: ok; or stopped if stop::requested() on any rank
/// before all steps were done; the state is saved then. Errors are thrown, on one rank or on all.
/// watchdog: as in pipeline::run. Collective.
Status train(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
             comm::Watchdog* watchdog);

}  // namespace reelmesh::train
