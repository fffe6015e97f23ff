#pragma once
// What the engine asks of the stages of a job. ClipMaker does it with models; the tests of the
// engine with numbers.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::pipeline {

enum class Stage { text, input, denoise, decode };

/// Arrays of a batch that are being moved from the ranks of one stage to those of the next.
class PendingHandOver {
 public:
  virtual ~PendingHandOver() = default;
  PendingHandOver() = default;
  PendingHandOver(const PendingHandOver&) = delete;
  PendingHandOver& operator=(const PendingHandOver&) = delete;
  /// Waits until they have arrived, or left a rank that only sends. Call it once.
  virtual void finish() = 0;
};

/// Batches are numbered from 0, in the order in which they are made. Functions that say "together"
/// are called by all ranks of a group, for the same batches in the same order.
class Work {
 public:
  virtual ~Work() = default;
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Facts of a batch, the same on all ranks: its clips; whether the text encoder is needed
  /// (otherwise restart files have the embeddings); whether its images or videos are to be encoded;
  /// bytes of its embeddings and encoded inputs.
  virtual std::size_t clips(std::size_t batch) const = 0;
  virtual bool needs_text(std::size_t batch) const = 0;
  virtual bool needs_input(std::size_t batch) const = 0;
  virtual std::int64_t embedding_bytes(std::size_t batch) const = 0;
  /// For each clip of a batch whether it has failed, as far as this rank knows.
  virtual std::vector<bool>& failed(std::size_t batch) = 0;

  /// The ranks of the text stage, of a replica (index in Roles::denoise), and of a decoder (index
  /// in Roles::decode).
  virtual const comm::Group& text_ranks() const = 0;
  virtual const comm::Group& replica_ranks(std::size_t replica) const = 0;
  virtual const comm::Group& decoder_ranks(std::size_t decoder) const = 0;

  /// Looks at this rank's memory before a stage, or a step of it, that comes next: if it is too
  /// little, the ranks are to leave (stop::leaving()), which they agree on as for a stop.
  virtual void watch(Stage /*next*/) {}
  /// Loads the weights of a stage, unless they are in memory. Its ranks together.
  virtual void enter(Stage stage) = 0;
  /// No more inputs are encoded.
  virtual void leave_input() = 0;
  /// From now on replicas and decoders are those of the plan for the last batches. All ranks
  /// together.
  virtual void begin_tail() = 0;

  /// Encodes the texts of a batch; the embeddings are then on the rank Schedule::embeddings_rank.
  /// → false if the job is to stop. The text ranks together.
  virtual bool encode(std::size_t batch) = 0;
  /// Encodes the inputs of a batch on the first `decoders` of the decoders, that of clip i on
  /// (first + i) mod decoders, and sends them to the rank with the embeddings. The ranks of these
  /// decoders and that rank together.
  virtual std::unique_ptr<PendingHandOver> encode_inputs(std::size_t batch, std::size_t first,
                                                         std::size_t decoders) = 0;
  /// Hands embeddings and inputs over to a replica. The rank that has them and the replica
  /// together.
  virtual void hand_over_text(std::size_t batch, std::size_t replica) = 0;
  /// Denoises a batch. after_step: called after each step. → false if the job is to stop; the batch
  /// is saved then. The replica together, with the same result and the same failed clips.
  virtual bool denoise(std::size_t batch, std::size_t replica,
                       const std::function<void()>& after_step) = 0;
  /// Sends the latents to a decoder. The ranks of both together.
  virtual std::unique_ptr<PendingHandOver> hand_over_latents(std::size_t batch, std::size_t replica,
                                                             std::size_t decoder) = 0;
  /// Decodes and writes the clips. The ranks of replica and decoder together.
  virtual void decode(std::size_t batch, std::size_t decoder,
                      std::unique_ptr<PendingHandOver> latents) = 0;

  /// Called about 50 times a second while this rank waits for control messages.
  virtual void wait_idly() {}

  /// Frees what waits for the hand-over to the replicas; all of a batch.
  virtual void release_embeddings(std::size_t batch) = 0;
  virtual void release(std::size_t batch) = 0;
};

/// Whether the inputs of one of the batches [first, end) are to be encoded.
inline bool any_needs_input(const Work& work, std::size_t first, std::size_t end) {
  for (std::size_t batch = first; batch < end; ++batch) {
    if (work.needs_input(batch)) return true;
  }
  return false;
}

}  // namespace reelmesh::pipeline
