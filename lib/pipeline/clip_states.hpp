#pragma once
// Which clips of a job are still to be made, and what job.h5 says of each.
#include "pipeline/make_clips.hpp"
#include "store/job.hpp"

namespace reelmesh::pipeline {

/// Those of these clips that are still to be made, with the steps that are saved of them. The ranks
/// share the work of reading the files that are there. Error(stopped) as stop::leave_if_requested.
/// Collective.
std::vector<ClipOutline> read_pending_together(const Job& job, const JobPlan& planned,
                                               const comm::Group& world,
                                               std::span<const ClipOutline> clips);

/// Those of the job when it begins: all, unless it resumes an earlier one. Collective.
std::vector<ClipOutline> find_pending_together(const Job& job, const JobPlan& planned,
                                               const comm::Group& world);

/// The states of the clips before they are made. pending: those of find_pending_together().
void set_states(std::vector<JobClip>& records, const std::vector<ClipOutline>& pending);
/// Their states afterwards.
void update_states(std::vector<JobClip>& records, const MadeClips& made);

/// Leaves only complete clips of this job in the folder `output`, by the states that the first rank
/// has. Collective.
void set_others_aside_together(const comm::Group& world, const std::filesystem::path& output,
                               const std::vector<JobClip>& records);

}  // namespace reelmesh::pipeline
