#pragma once
// Which clips of a job are still to be made, and what job.h5 says of each.
#include "pipeline/make_clips.hpp"
#include "store/job.hpp"

namespace reelmesh::pipeline {

/// Clips as their files say.
struct FoundClips {
  std::vector<ClipOutline> unfinished;  ///< not complete, with the steps that are saved of them
  std::vector<int> previews;            ///< those of them that have a preview, ascending
};

/// The clips of the job when it begins: none is complete, unless it resumes an earlier one.
/// Error(no_input) or Error(data) if a chosen clip (Job::chosen) has no saved state that can be
/// used; Error(stopped) as stop::leave_if_requested. Collective.
FoundClips find_clips_together(const Job& job, const JobPlan& planned, const comm::Group& world);

/// Those that the job still makes: it leaves clips of which the steps are saved that it asks for
/// (Job::stop_after), with a preview.
std::vector<ClipOutline> clips_to_make(const Job& job, const FoundClips& found);

/// Those of these clips that the job still makes. The ranks share the work of reading the files
/// that are there. Error(stopped) as stop::leave_if_requested. Collective.
std::vector<ClipOutline> read_pending_together(const Job& job, const JobPlan& planned,
                                               const comm::Group& world,
                                               std::span<const ClipOutline> clips);

/// The states of the clips before they are made.
void set_states(std::vector<JobClip>& records, const FoundClips& found);
/// Their states afterwards.
void update_states(std::vector<JobClip>& records, const MadeClips& made);

/// Leaves only complete clips of this job and previews in the folder `output`, by the states that
/// the first rank has. Collective.
void set_others_aside_together(const comm::Group& world, const std::filesystem::path& output,
                               const std::vector<JobClip>& records);

}  // namespace reelmesh::pipeline
