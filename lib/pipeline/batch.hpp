#pragma once
// Clips that are denoised together.
#include "pipeline/clip.hpp"

namespace reelmesh::pipeline {

/// Clips of one size, that is of one shape in all arrays of the transformer and one course of the
/// sampler: height, width, frames, fps, steps and guidance. At least one. Each has its own prompt,
/// seed and noise, and its bits do not depend on the others.
using Batch = std::vector<Clip>;

/// The clips in batches of at most `most`, without changing their order more than that takes: each
/// clip joins the batch of its size that has room, and batches stand in the order of their first
/// clips.
std::vector<Batch> batches_of(std::vector<Clip> clips, int most);

/// Sampler steps of all of its clips.
std::int64_t steps_of(const Batch& batch);

}  // namespace reelmesh::pipeline
