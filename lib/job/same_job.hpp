#pragma once
#include <string>

#include "comm/group.hpp"
#include "job/job.hpp"

namespace reelmesh {

/// Checks that all ranks were given the same job: program, options, current folder and clips, which
/// could differ by a job file that is not the same on all hosts, or by the launcher's command.
/// program: version and revision. Error(usage) on all ranks, with the first difference and its
/// ranks. Collective.
void require_same_job_together(const comm::Group& world, const Job& job,
                               const std::string& program);

}  // namespace reelmesh
