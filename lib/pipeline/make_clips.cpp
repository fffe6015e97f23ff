#include "pipeline/make_clips.hpp"

#include <algorithm>

#include "forecast/plan_job.hpp"
#include "pipeline/clip_maker.hpp"
#include "pipeline/engine.hpp"

namespace reelmesh::pipeline {

void MadeClips::append(const MadeClips& later) {
  complete = later.complete;
  const auto add = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(failures, later.failures);
  std::ranges::stable_sort(failures, {}, &ClipFailure::clip);
  add(written, later.written);
  add(saved, later.saved);
  add(previews, later.previews);
}

MadeClips make_clips_together(const Job& job, const JobPlan& planned, const comm::Group& world,
                              std::span<const ClipOutline> clips, Device device,
                              comm::Watchdog* watchdog, TraceWriter* traces, StepTrial* trial,
                              MemoryWatch* memory, int calls) {
  constexpr int queues_of_call = 1 << 28;  // more than there are ranks times rounds
  if (clips.empty()) return {};
  std::vector<BatchOutline> batches = ordered_batches(planned, clips, job.batch);
  const Plan& plan = planned.plan;
  const Schedule schedule{.roles = plan.roles,
                          .batches = batches.size(),
                          .embeddings_rank = plan.embeddings_rank(),
                          .first_queue = calls * queues_of_call,
                          .queue_bytes = plan.queue_bytes,
                          .tail_batches = planned.tail_of(batches.size()),
                          .tail_roles = planned.tail ? planned.tail->roles : Roles{}};
  ClipMaker maker(job, planned, world, device, std::move(batches), traces, trial, memory);
  const bool complete = make_batches_together(world, maker, schedule, watchdog);
  return maker.finish_together(complete);
}

}  // namespace reelmesh::pipeline
