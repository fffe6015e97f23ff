#pragma once
// Split mode: each stage has ranks of its own, and batches stream through them.
#include <span>

#include "comm/watchdog.hpp"
#include "pipeline/clip_maker.hpp"
#include "plan/schedule.hpp"

namespace reelmesh::pipeline {

/// Makes batches, in the order of order_of(). A replica takes a batch when it is free, asks the
/// text ranks for its embeddings, denoises, and goes on with the next batch while its latents are
/// on their way to the decoding ranks. If the plan says so (Roles::helpers) and there are queues
/// (comm::Watchdog), two kinds of helpers make batches themselves: text ranks after the last
/// prompt, and decoding ranks when no latents are ready to decode. rules: of the helpers, which
/// decide by what the queues have left. → whether all batches were made, on this rank. Collective.
bool make_split(ClipMaker& maker, std::span<BatchState> batches,
                const std::vector<HelperRule>& rules, comm::Watchdog* watchdog);

}  // namespace reelmesh::pipeline
