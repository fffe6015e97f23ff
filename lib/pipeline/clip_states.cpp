#include "pipeline/clip_states.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "comm/together.hpp"
#include "pipeline/autosave.hpp"
#include "store/earlier.hpp"

namespace reelmesh::pipeline {

namespace {

void tell(const JobPlan& planned, std::size_t complete, const std::vector<ClipOutline>& pending) {
  const auto saved =
      std::ranges::count_if(pending, [](const ClipOutline& clip) { return clip.saved_step > 0; });
  if (complete > 0) {
    log::info("{} of {} clips are complete already", complete, planned.clips.size());
  }
  for (const ClipOutline& clip : pending) {
    if (clip.saved_step == 0) continue;
    log::info("clip {} goes on after step {} of {}{}", clip.index, clip.saved_step,
              planned.end_step(clip),
              saved > 1 ? fmt::format(", and {} more clips after saved steps", saved - 1) : "");
    break;
  }
}

FoundClips read_clips_together(const Job& job, const JobPlan& planned, const comm::Group& world,
                               std::span<const ClipOutline> clips) {
  constexpr std::int64_t complete = -1;
  std::vector<std::int64_t> steps(clips.size(), 0), previews(clips.size(), 0);
  const std::int64_t channels = planned.family->text_encoder().d_model;
  const auto ranks = static_cast<std::size_t>(world.size());
  for (auto i = static_cast<std::size_t>(world.rank()); i < clips.size(); i += ranks) {
    stop::leave_if_requested("the files of earlier jobs are checked");
    std::error_code unreadable;
    const int index = clips[i].index;
    const std::filesystem::path path = clip_path(job.output, index);
    const std::filesystem::path restart = restart_path(restart_folder(job, index), index);
    const bool has_file = std::filesystem::exists(path, unreadable);
    if (!has_file && !std::filesystem::exists(restart, unreadable)) continue;
    const Clip clip = planned.clip(job, clips[i]);
    const ClipShapes shapes = output_shapes(job, clip, channels);
    if (has_file && clip_complete(path, clip.record, shapes)) {
      steps[i] = complete;
      continue;
    }
    previews[i] = has_file && is_preview(path, clip.record, shapes) ? 1 : 0;
    const FoundState found = find_state(job, clip, channels);
    steps[i] = found.step;
    if (!found.problem.empty() && job.chosen.empty()) {
      log::warning_here("{}: {}; the clip starts again", restart.string(), found.problem);
    }
  }
  world.sum(steps);
  world.sum(previews);
  FoundClips found;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (steps[i] == complete) continue;
    found.unfinished.push_back(clips[i]);
    found.unfinished.back().saved_step = static_cast<std::int32_t>(steps[i]);
    if (previews[i] != 0) found.previews.push_back(clips[i].index);
  }
  return found;
}

// Chosen clips go on from states of an earlier job.
void require_state(const Job& job, const JobPlan& planned, const ClipOutline& clip) {
  if (clip.saved_step > 0) return;
  const std::filesystem::path path = restart_path(restart_folder(job, clip.index), clip.index);
  const std::string problem =
      find_state(job, planned.clip(job, clip), planned.family->text_encoder().d_model).problem;
  require(!problem.empty(), Status::no_input,
          "--clips: {} of clip {} is missing, expected the state that sample.stop-after saves; "
          "complete clips have none",
          path.string(), clip.index);
  fail(Status::data, "--clips: {} of clip {} cannot be used: {}", path.string(), clip.index,
       problem);
}

// A job that does not resume has no files, but those of the states that its clips go on from.
FoundClips find_new_together(const Job& job, const JobPlan& planned, const comm::Group& world) {
  FoundClips found{.unfinished = planned.clips, .previews = {}};
  if (job.chosen.empty()) return found;
  for (const ClipOutline& clip :
       read_clips_together(job, planned, world, chosen_clips(job, planned.clips)).unfinished) {
    found.unfinished[static_cast<std::size_t>(clip.index)] = clip;
  }
  return found;
}

}  // namespace

FoundClips find_clips_together(const Job& job, const JobPlan& planned, const comm::Group& world) {
  const bool resumes = job.if_exists == IfExists::resume;
  if (resumes) comm::run_on_first_rank(world, [&] { move_clips_to_folders(job.output); });
  FoundClips found = resumes ? read_clips_together(job, planned, world, planned.clips)
                             : find_new_together(job, planned, world);
  const std::vector<ClipOutline> to_make = clips_to_make(job, found);
  if (!job.chosen.empty()) {
    comm::run_on_first_rank(world, [&] {
      for (const ClipOutline& clip : to_make) require_state(job, planned, clip);
    });
  }
  tell(planned, planned.clips.size() - found.unfinished.size(), to_make);
  return found;
}

std::vector<ClipOutline> clips_to_make(const Job& job, const FoundClips& found) {
  std::vector<ClipOutline> clips = chosen_clips(job, found.unfinished);
  std::erase_if(clips, [&](const ClipOutline& clip) {
    return job.stop_after && clip.saved_step >= *job.stop_after &&
           std::ranges::binary_search(found.previews, clip.index);
  });
  return clips;
}

std::vector<ClipOutline> read_pending_together(const Job& job, const JobPlan& planned,
                                               const comm::Group& world,
                                               std::span<const ClipOutline> clips) {
  return clips_to_make(job, read_clips_together(job, planned, world, clips));
}

void set_states(std::vector<JobClip>& records, const FoundClips& found) {
  for (JobClip& record : records) record.state = {ClipState::complete, {}};
  const auto state_of = [&](int clip) -> ClipState::State& {
    return records.at(static_cast<std::size_t>(clip)).state.state;
  };
  for (const ClipOutline& clip : found.unfinished) {
    state_of(clip.index) = clip.saved_step > 0 ? ClipState::saved : ClipState::missing;
  }
  for (const int clip : found.previews) state_of(clip) = ClipState::preview;
}

void update_states(std::vector<JobClip>& records, const MadeClips& made) {
  const auto set = [&](int clip, ClipState state) {
    records.at(static_cast<std::size_t>(clip)).state = std::move(state);
  };
  for (const int clip : made.saved) {
    const ClipState& before = records.at(static_cast<std::size_t>(clip)).state;
    if (before.state != ClipState::preview) set(clip, {ClipState::saved, {}});
  }
  for (const int clip : made.previews) set(clip, {ClipState::preview, {}});
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
      return i < records.size() && records[i].state.has_file();
    }));
  });
  moved = world.max(moved);
  if (moved == 0) return;
  log::info("{} {} not of this job, or damaged: moved to {}", moved,
            moved == 1 ? "clip file is" : "clip files are", (output / "earlier").string());
}

}  // namespace reelmesh::pipeline
