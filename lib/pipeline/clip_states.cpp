#include "pipeline/clip_states.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "comm/together.hpp"
#include "pipeline/autosave.hpp"
#include "store/earlier.hpp"

namespace reelmesh::pipeline {

namespace {

void tell(const JobPlan& planned, const std::vector<ClipOutline>& pending) {
  const std::size_t all = planned.clips.size();
  const auto saved =
      std::ranges::count_if(pending, [](const ClipOutline& clip) { return clip.saved_step > 0; });
  if (pending.size() < all) {
    log::info("{} of {} clips are complete already", all - pending.size(), all);
  }
  for (const ClipOutline& clip : pending) {
    if (clip.saved_step == 0) continue;
    log::info("clip {} goes on after step {} of {}{}", clip.index, clip.saved_step,
              planned.clip_steps(clip.index),
              saved > 1 ? fmt::format(", and {} more clips after saved steps", saved - 1) : "");
    break;
  }
}

}  // namespace

std::vector<ClipOutline> read_pending_together(const Job& job, const JobPlan& planned,
                                               const comm::Group& world,
                                               std::span<const ClipOutline> clips) {
  constexpr std::int64_t complete = -1;
  std::vector<std::int64_t> steps(clips.size(), 0);
  const std::int64_t channels = planned.family->text_encoder().d_model;
  const auto ranks = static_cast<std::size_t>(world.size());
  for (auto i = static_cast<std::size_t>(world.rank()); i < clips.size(); i += ranks) {
    stop::leave_if_requested("the files of earlier jobs are checked");
    std::error_code unreadable;
    const std::filesystem::path path = clip_path(job.output, clips[i].index);
    const std::filesystem::path restart = restart_path(job.output, clips[i].index);
    if (!std::filesystem::exists(path, unreadable) &&
        !std::filesystem::exists(restart, unreadable)) {
      continue;
    }
    const Clip clip = planned.clip(job, clips[i]);
    const bool made = clip_complete(path, clip.record, output_shapes(job, clip, channels));
    steps[i] = made ? complete : saved_steps(job.output, clip, channels);
  }
  world.sum(steps);
  std::vector<ClipOutline> pending;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (steps[i] == complete) continue;
    pending.push_back(clips[i]);
    pending.back().saved_step = static_cast<std::int32_t>(steps[i]);
  }
  return pending;
}

std::vector<ClipOutline> find_pending_together(const Job& job, const JobPlan& planned,
                                               const comm::Group& world) {
  if (job.if_exists != IfExists::resume) return planned.clips;
  comm::run_on_first_rank(world, [&] { move_clips_to_folders(job.output); });
  std::vector<ClipOutline> pending = read_pending_together(job, planned, world, planned.clips);
  tell(planned, pending);
  return pending;
}

void set_states(std::vector<JobClip>& records, const std::vector<ClipOutline>& pending) {
  for (JobClip& record : records) record.state = {ClipState::complete, {}};
  for (const ClipOutline& clip : pending) {
    records.at(static_cast<std::size_t>(clip.index)).state.state =
        clip.saved_step > 0 ? ClipState::saved : ClipState::missing;
  }
}

void update_states(std::vector<JobClip>& records, const MadeClips& made) {
  const auto set = [&](int clip, ClipState state) {
    records.at(static_cast<std::size_t>(clip)).state = std::move(state);
  };
  for (const int clip : made.saved) set(clip, {ClipState::saved, {}});
  for (const int clip : made.written) set(clip, {ClipState::complete, {}});
  for (const ClipFailure& failure : made.failures) {
    set(failure.clip, {ClipState::failed, failure.reason});
  }
}

void set_others_aside_together(const comm::Group& world, const std::filesystem::path& output,
                               const std::vector<JobClip>& records) {
  std::int64_t moved = 0;
  comm::run_on_first_rank(world, [&] {
    moved = static_cast<std::int64_t>(set_clips_aside(output, [&](int clip) {
      const auto i = static_cast<std::size_t>(clip);
      return i < records.size() && records[i].state.state == ClipState::complete;
    }));
  });
  moved = world.max(moved);
  if (moved == 0) return;
  log::info("{} {} not of this job, or damaged: moved to {}", moved,
            moved == 1 ? "clip file is" : "clip files are", (output / "earlier").string());
}

}  // namespace reelmesh::pipeline
