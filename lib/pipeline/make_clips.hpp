#pragma once
#include "comm/group.hpp"
#include "pipeline/job_plan.hpp"

namespace reelmesh::pipeline {

/// Makes clips of a planned job and writes their files. world: ranks in plan order. → whether all
/// are made; false if the job was to stop (stop::requested() on any rank): then the clips in work
/// are saved. Collective; the same result on all ranks.
bool make_clips(const Job& job, const JobPlan& planned, const comm::Group& world,
                std::vector<Clip> clips, Device device);

}  // namespace reelmesh::pipeline
