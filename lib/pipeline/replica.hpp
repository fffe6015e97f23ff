#pragma once
// The loop of the ranks that denoise, in both modes.
#include "pipeline/batch_queue.hpp"
#include "pipeline/work.hpp"

namespace reelmesh::pipeline {

/// What differs between the modes for a replica. The ranks of the queue's group call each function
/// together; false, on all of them: the job is to stop.
struct ReplicaPolicy {
  std::function<bool(std::size_t batch)> receive;  ///< gets its embeddings
  std::function<void()> after_step;                ///< of the ranks that denoise
  /// Its latents, to those who decode. stopped: while it was denoised.
  std::function<bool(std::size_t batch, bool stopped)> pass_on;
};

/// Makes the batches [first, end) that the replica takes from the queue. → false if the job is to
/// stop. The ranks of the queue's group together.
inline bool run_replica(Work& work, BatchQueue& queue, std::size_t replica, std::size_t first,
                        std::size_t end, const ReplicaPolicy& policy) {
  while (true) {
    work.watch(Stage::denoise);
    const auto next = queue.next_together(end - first);
    if (!next) return !queue.stopped();
    const std::size_t batch = first + *next;
    if (!policy.receive(batch)) return false;
    work.enter(Stage::denoise);
    const bool denoised = work.denoise(batch, replica, policy.after_step);
    if (!policy.pass_on(batch, !denoised)) return false;
    work.release(batch);
  }
}

}  // namespace reelmesh::pipeline
