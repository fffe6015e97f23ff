#pragma once
// The decoding ranks of split mode.
#include <deque>
#include <vector>

#include "pipeline/control_messages.hpp"
#include "pipeline/engine.hpp"

namespace reelmesh::pipeline {

/// Decodes and writes the batches that replicas send, in the order in which they arrive, and
/// encodes the inputs that the text ranks ask for.
class DecodeServer {
 public:
  DecodeServer(Work& work, const Schedule& schedule, comm::Mailbox& mailbox);
  /// Returns when all replicas have finished. → false if the job is to stop: batches that arrive
  /// from then on are not decoded; their replicas have saved them. The decoding ranks together.
  bool run();

 private:
  /// What the ranks do next: a message of kind latents or encode, and whether the job is to stop.
  Words next_task();
  void receive(Words words);
  void decode(const Words& latents, bool stops);
  void encode(std::int64_t batch, bool stops);

  Work& work_;
  const Schedule& schedule_;
  comm::Mailbox& mailbox_;
  comm::Group group_;
  bool leads_;
  bool inputs_left_;  ///< the text ranks may ask for more
  bool stopped_ = false;
  std::deque<std::unique_ptr<PendingHandOver>> pending_;  ///< encoded inputs

  // On the leader.
  std::deque<Words> arrived_;
  std::size_t replicas_at_work_;
};

}  // namespace reelmesh::pipeline
