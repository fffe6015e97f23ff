#pragma once
#include "comm/watchdog.hpp"
#include "job/job_plan.hpp"
#include "pipeline/failures.hpp"
#include "pipeline/step_trial.hpp"
#include "store/trace.hpp"

namespace reelmesh::pipeline {

struct MadeClips {
  /// False if the job was to stop (stop::requested() on any rank), or a trial had enough: the clips
  /// in progress are saved.
  bool complete = true;
  std::vector<ClipFailure> failures;  ///< by clip
  std::vector<int> written;           ///< clips whose files were written
  std::vector<int> saved;             ///< clips that were saved within their denoising

  /// Adds what was made after this, of the same job.
  void append(const MadeClips& later);
};

/// Makes clips of a planned job and writes their files. world: ranks in plan order. watchdog: its
/// counter gives replicas their next batches; without one, or if it has no counter, they take
/// turns. traces: written while ranks wait; may be null. trial: if not null, each replica makes one
/// batch until it has enough of its steps, which are saved as if the job was to stop. The same
/// result on all ranks. Collective over the world.
MadeClips make_clips_together(const Job& job, const JobPlan& planned, const comm::Group& world,
                              std::span<const ClipOutline> clips, Device device,
                              comm::Watchdog* watchdog, TraceWriter* traces,
                              StepTrial* trial = nullptr);

}  // namespace reelmesh::pipeline
