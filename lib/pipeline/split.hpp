#pragma once
// Split mode: each stage has ranks of its own, and batches stream through them.
#include <span>

#include "comm/watchdog.hpp"
#include "pipeline/clip_maker.hpp"
#include "plan/task_schedule.hpp"

namespace reelmesh::pipeline {

/// Makes batches, in the order of batch_order(). A replica takes a batch when it is free, asks the
/// text ranks for its embeddings, denoises, and goes on with the next batch while its latents are
/// being sent to the decoding ranks. If the plan says so (Roles::helpers), text ranks also make
/// batches after encoding the last prompt, and decoding ranks while no latents wait. They need the
/// queues of comm::Watchdog, which say what batches are left. rules: of the helpers. → whether all
/// batches were made, on this rank. Collective.
bool make_split(ClipMaker& maker, std::span<BatchState> batches,
                const std::vector<HelperRule>& rules, comm::Watchdog* watchdog);

}  // namespace reelmesh::pipeline
