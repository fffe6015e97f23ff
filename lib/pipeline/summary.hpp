#pragma once
// What `run` and `plan` say first: the stages of a job in a table that is read at a glance.
#include "pipeline/job_plan.hpp"

namespace reelmesh::pipeline {

/// A row a stage: its ranks, the axes along which they divide the work, and the largest share and
/// the largest memory that one of them gets, with the limit where there is one. Denoising and
/// decoding have a row for each of the first formats of clips.
std::string summary(const JobPlan& planned);

/// "4 clips of 9x64x64 (frames x height x width), 20 steps"; names the number of formats where
/// clips differ. clips: those that are to be made, not empty.
std::string describe_clips(const std::vector<ClipOutline>& clips, const ClipKinds& kinds);

}  // namespace reelmesh::pipeline
