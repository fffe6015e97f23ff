#pragma once
// Makes the batches of a job: which rank does what when.
#include "comm/watchdog.hpp"
#include "pipeline/work.hpp"
#include "plan/roles.hpp"

namespace reelmesh::pipeline {

/// What the engine needs of a plan.
struct Schedule {
  Roles roles;
  std::size_t batches = 0;
  int embeddings_rank = 0;       ///< of the world: the rank that has the embeddings
  int first_queue = 0;           ///< of the watchdog's counter: from here on none was used
  std::int64_t queue_bytes = 0;  ///< of embeddings, what may wait there at a time
  /// Phased mode: how many of the batches, the last ones, are made with other roles, and these.
  std::size_t tail_batches = 0;
  Roles tail_roles;
};

/// Makes all batches in their order, by one of two policies. A replica takes a batch whenever it is
/// free (BatchQueue), denoises it and passes it on.
/// - Phased: all ranks encode as many texts and inputs as the queue holds and hand them over; then
///   each replica makes batches, which its own decoder decodes, until the queue is empty.
/// - Split: text ranks, replicas and decoding ranks work at the same time. A replica asks the text
///   ranks for the embeddings of its batch, and goes on with the next batch while its latents are
///   being sent to the decoding ranks.
/// world: in plan order. watchdog: counts the batches that are taken; may be null. → false if the
/// job was to stop before all batches were made; the same on all ranks. Collective over the world.
bool make_batches_together(const comm::Group& world, Work& work, const Schedule& schedule,
                           comm::Watchdog* watchdog);

}  // namespace reelmesh::pipeline
