#pragma once
#include "base/error.hpp"
#include "plan/job.hpp"

namespace reelmesh::pipeline {

/// What the results say they were made by.
struct ProgramInfo {
  std::string name, version, revision;
};

/// Makes the clips of a job: the same call on every rank of the world, after MPI has been set up.
/// All ranks return the same status; what stops the job is thrown, on one rank or on all.
Status run(const Job& job, const ProgramInfo& program);

}  // namespace reelmesh::pipeline
