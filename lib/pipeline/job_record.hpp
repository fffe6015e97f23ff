#pragma once
// What job.h5 says of a job.
#include "pipeline/job_plan.hpp"
#include "pipeline/machine.hpp"
#include "pipeline/run.hpp"
#include "store/job.hpp"

namespace reelmesh::pipeline {

/// The record of a job that has been planned, unfinished, without `clips`, `plan`, `plan_json` and
/// times. weights: hash of the checkpoint. Complete on the first rank only. Collective.
JobRecord job_record(const comm::Group& world, const Job& job, const ProgramInfo& program,
                     const Machine& machine, Device device, const std::string& weights);

/// The clips of a job with their requests, without states. Of job.clips in the same order.
std::vector<JobClip> job_clips(const Job& job, const std::vector<Clip>& clips);

/// Error(data) if the job runs another one again (Job::source) and the checkpoint is not the one
/// that made its clips.
void require_same_weights(const Job& job, const std::string& weights);

}  // namespace reelmesh::pipeline
