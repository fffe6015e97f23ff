#pragma once
#include "comm/watchdog.hpp"
#include "job/job_plan.hpp"
#include "pipeline/failures.hpp"
#include "pipeline/memory_watch.hpp"
#include "pipeline/step_trial.hpp"
#include "store/trace.hpp"

namespace reelmesh::pipeline {

struct MadeClips {
  /// False if the ranks were to leave (stop::leaving() on any), or a trial had enough: the clips in
  /// progress are saved.
  bool complete = true;
  std::vector<ClipFailure> failures;  ///< by clip
  std::vector<int> written;           ///< clips whose files were written
  std::vector<int> saved;             ///< clips that were saved within their denoising
  std::vector<int> previews;          ///< clips that were left, whose files are previews

  /// Adds what was made after this, of the same job.
  void append(const MadeClips& later);
};

/// Makes clips of a planned job and writes their files. world: ranks in plan order. watchdog: its
/// counter gives replicas their next batches; without one, or if it has no counter, they take
/// turns. traces: written while ranks wait; may be null. trial: if not null, each replica makes one
/// batch until it has enough of its steps, which are saved as if the job was to stop. memory: looks
/// at this rank's memory before stages and steps; may be null. calls: how often it was called
/// with this watchdog before. The same result on all ranks. Collective over the world.
MadeClips make_clips_together(const Job& job, const JobPlan& planned, const comm::Group& world,
                              std::span<const ClipOutline> clips, Device device,
                              comm::Watchdog* watchdog, TraceWriter* traces,
                              StepTrial* trial = nullptr, MemoryWatch* memory = nullptr,
                              int calls = 0);

}  // namespace reelmesh::pipeline
