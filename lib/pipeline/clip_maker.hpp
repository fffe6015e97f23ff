#pragma once
// The stages of a job, applied to batches of clips. Which rank calls what when: make_clips.cpp
// (phased mode), split.cpp (split mode).
#include <functional>
#include <optional>
#include <vector>

#include "base/progress.hpp"
#include "base/trace.hpp"
#include "layout/relayout.hpp"
#include "pipeline/make_clips.hpp"
#include "pipeline/stages.hpp"

namespace reelmesh::pipeline {

/// A batch between the stages, with this rank's part of the tensors of each of its clips.
struct BatchState {
  BatchState(const Job& of, const JobPlan& plan, BatchOutline batch)
      : job(&of), planned(&plan), outline(std::move(batch)) {}

  const Job* job;
  const JobPlan* planned;
  BatchOutline outline;
  bool stopped = false;  ///< its remaining stages are skipped
  // Empty unless this rank works on the batch: a job may have a million batches.
  Batch clips;
  std::vector<bool> failed;                ///< per clip, as far as this rank knows
  std::vector<Tensor> embeddings;          ///< after encoding
  std::vector<Tensor> inputs;              ///< of clips that begin from a file, after encoding
  std::vector<Conditioning> conditioning;  ///< after the hand-over to the denoising groups
  std::vector<Tensor> video_latents;       ///< of clips made from videos, after that hand-over
  std::vector<Tensor> latents;             ///< after denoising

  /// How many clips it has.
  std::size_t size() const { return outline.size(); }
  /// Whether the text encoder is needed; otherwise restart files have the embeddings.
  bool needs_text() const { return outline.front().saved_step == 0; }
  /// Whether its images or videos are to be encoded.
  bool needs_input() const {
    return needs_text() && planned->kinds[outline.front().kind].input.has_value();
  }
  /// Makes the clips and room for their tensors, unless they are there.
  void open();
  /// The clips that have not failed, by their indices in `clips`.
  std::vector<std::size_t> not_failed() const;
  /// Frees what waits for the hand-over to the denoising groups.
  void release_encoded();
  /// Frees what the denoising groups have received.
  void release_conditioning();
  /// Frees all tensors and the clips. What has failed stays known.
  void release();
};

/// Whether a job is to stop, agreed by the ranks of a group. Asked before each piece of a long
/// series of work, it exchanges messages only about every 5 s, so that ranks that pass work on to
/// each other need not wait for the slowest.
class PacedVote {
 public:
  explicit PacedVote(const comm::Group& group) : group_(group) {}
  bool stop();

 private:
  comm::Group group_;
  bool stopped_ = false;
  std::int64_t interval_ = 1, left_ = 1;  ///< pieces
  std::int64_t last_ = trace::now_ns();
};

class ClipMaker {
 public:
  /// steps: of all clips. progress: whether this rank shows its progress. world: ranks in plan
  /// order. Collective over the world.
  ClipMaker(const Job& job, const JobPlan& planned, const comm::Group& world, Device device,
            std::int64_t steps);

  const comm::Group& world() const { return world_; }
  const Plan& plan() const { return *plan_; }
  Stages& stages() { return stages_; }
  /// Bytes of a batch's embeddings and encoded inputs.
  std::int64_t embedding_bytes(const BatchState& batch) const;

  /// From now on replicas are those of the plan for the last clips. Collective over the world.
  void begin_tail();

  /// Encodes the texts of a batch. The ranks of the text group call it together, and batch.stopped
  /// is the same on all of them. The embeddings are on plan().embeddings_rank().
  void encode(BatchState& batch);
  /// Encoded inputs that are being sent from a group of Roles::decode to plan().embeddings_rank().
  class InputsHandOver {
   public:
    /// Waits until they have arrived or left. A clip whose input is not finite fails.
    void finish();

   private:
    friend class ClipMaker;
    ClipMaker* maker_ = nullptr;
    BatchState* batch_ = nullptr;
    std::vector<std::pair<std::size_t, HandOver>> hand_overs_;  ///< by index in the batch
  };
  /// Encodes the inputs of a batch on the first `groups` of Roles::decode: that of clip i on group
  /// (first + i) mod groups. Called on the ranks of these groups and on plan().embeddings_rank().
  InputsHandOver encode_inputs(BatchState& batch, std::size_t first, std::size_t groups);
  /// Hands embeddings and inputs over to a replica. Called on that rank and on those of the
  /// replica.
  void condition(BatchState& batch, std::size_t replica) const;
  /// Denoises on the ranks of a replica; reads the embeddings of clips that have restart files.
  /// after_step: called after each step. batch.stopped and .failed are the same on all its ranks.
  void denoise(BatchState& batch, std::size_t replica, const std::function<void()>& after_step);

  /// Latents of a batch, and its embeddings if they are written, from a replica to a group of
  /// Roles::decode.
  struct LatentsHandOver {
    std::vector<HandOver> latents, embeddings;  ///< per clip of not_failed()
    /// On ranks that only send: waits until the data has left.
    void finish();
  };
  LatentsHandOver hand_over_latents(BatchState& batch, std::size_t replica,
                                    std::size_t decoder) const;
  /// Decodes and writes the clips. Called on the ranks of the replica and of the decoder.
  void decode(const BatchState& batch, std::size_t decoder, LatentsHandOver from_replica);

  /// Ends the progress line. → the outcome of the clips on all ranks. Collective over the world.
  MadeClips finish(bool complete);

 private:
  const ClipPlan& clip_plan(const Clip& clip) const { return planned_.clip_plan(clip, *plan_); }
  void read_conditioning(BatchState& batch, std::size_t replica) const;
  void take_input(BatchState& batch, std::size_t clip, std::size_t replica,
                  const Tensor& input) const;
  void write(const Clip& clip, std::size_t decoder, const Sharded& latents, const Sharded& video,
             const Tensor& embeddings);

  const Job& job_;
  const JobPlan& planned_;
  const Plan* plan_;  ///< planned_.plan, and for the last clips planned_.tail
  comm::Group world_;
  /// The same ranks, for hand-overs of embeddings: two ranks may begin these and those of latents
  /// in different orders.
  comm::Group text_world_;
  comm::Group input_world_;  ///< likewise, for encoded inputs
  std::int64_t channels_;    ///< of embeddings
  Failures failures_;
  std::vector<int> written_, saved_;  ///< clips, on the first rank of the group that did it
  Stages stages_;
  PacedVote text_vote_;
  Progress progress_;
  std::int64_t last_written_ = trace::now_ns();
};

}  // namespace reelmesh::pipeline
