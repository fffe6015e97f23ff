#pragma once
#include "base/error.hpp"
#include "comm/group.hpp"
#include "plan/job.hpp"

namespace reelmesh::pipeline {

/// What the results say they were made by.
struct ProgramInfo {
  std::string name, version, revision;
};

/// Makes the clips of a job on the ranks of a group, by the same call on each of them. All return
/// the same status; what stops the job is thrown, on one rank or on all.
Status run(const comm::Group& ranks, const Job& job, const ProgramInfo& program);

}  // namespace reelmesh::pipeline
