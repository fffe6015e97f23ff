#pragma once
#include "comm/watchdog.hpp"
#include "pipeline/failures.hpp"
#include "pipeline/job_plan.hpp"

namespace reelmesh::pipeline {

struct MadeClips {
  /// False if the job was to stop (stop::requested() on any rank): the clips in work are saved.
  bool complete = true;
  std::vector<ClipFailure> failures;  ///< by clip
};

/// Makes clips of a planned job and writes their files. world: ranks in plan order. counter: from
/// which replicas take batches as they become free; without one, or if it has no counter, each
/// takes every n-th. Collective; the same result on all ranks.
MadeClips make_clips(const Job& job, const JobPlan& planned, const comm::Group& world,
                     std::vector<Clip> clips, Device device, comm::Watchdog* counter);

}  // namespace reelmesh::pipeline
