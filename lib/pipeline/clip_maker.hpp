#pragma once
// The stages of a job, applied to batches of clips, as the engine asks for it.
#include <map>
#include <optional>
#include <vector>

#include "base/trace.hpp"
#include "layout/hand_over.hpp"
#include "pipeline/batch_queue.hpp"
#include "pipeline/make_clips.hpp"
#include "pipeline/stages.hpp"
#include "pipeline/step_trial.hpp"
#include "pipeline/work.hpp"

namespace reelmesh::pipeline {

/// A batch between the stages, with this rank's part of the tensors of each of its clips.
struct BatchState {
  Batch clips;                     ///< empty after release()
  std::vector<bool> failed;        ///< per clip, as far as this rank knows; kept by release()
  std::vector<Tensor> embeddings;  ///< after encoding
  std::vector<Tensor> inputs;      ///< of clips that begin from a file, after encoding
  std::vector<Tensor> vision;      ///< rows of the vision encoder, likewise
  std::vector<Conditioning> conditioning;  ///< after the hand-over to the denoising groups
  std::vector<Tensor> video_latents;       ///< of clips made from videos, after that hand-over
  std::vector<Tensor> latents;             ///< after denoising

  /// The clips that have not failed, by their indices in `clips`.
  std::vector<std::size_t> not_failed() const;
  /// Frees what waits for the hand-over to the denoising groups.
  void release_encoded();
  /// Frees all tensors and the clips.
  void release();
};

class ClipMaker final : public Work {
 public:
  /// batches: in the order in which they are made. world: ranks in plan order. traces, trial,
  /// memory: as of make_clips_together. Collective over the world.
  ClipMaker(const Job& job, const JobPlan& planned, const comm::Group& world, Device device,
            std::vector<BatchOutline> batches, TraceWriter* traces, StepTrial* trial,
            MemoryWatch* memory);

  std::size_t clips(std::size_t batch) const override { return batches_[batch].size(); }
  bool needs_text(std::size_t batch) const override;
  bool needs_input(std::size_t batch) const override;
  std::int64_t embedding_bytes(std::size_t batch) const override;
  std::vector<bool>& failed(std::size_t batch) override { return opened(batch).failed; }

  const comm::Group& text_ranks() const override { return stages_.encode.group(); }
  const comm::Group& replica_ranks(std::size_t replica) const override {
    return stages_.denoise_batch.group(replica);
  }
  const comm::Group& decoder_ranks(std::size_t decoder) const override {
    return stages_.decode_clip.group(decoder);
  }

  void watch(Stage next) override {
    if (memory_ != nullptr) memory_->look(next, *plan_, world_.rank());
  }
  void enter(Stage stage) override { stages_.enter(stage); }
  void leave_input() override { stages_.leave_input(); }
  void begin_tail() override;
  bool encode(std::size_t batch) override;
  /// A clip whose input is not finite fails.
  std::unique_ptr<PendingHandOver> encode_inputs(std::size_t batch, std::size_t first,
                                                 std::size_t decoders) override;
  void hand_over_text(std::size_t batch, std::size_t replica) override;
  /// Reads the embeddings of clips that have restart files.
  bool denoise(std::size_t batch, std::size_t replica,
               const std::function<void()>& after_step) override;
  /// Also the embeddings, if they are written.
  std::unique_ptr<PendingHandOver> hand_over_latents(std::size_t batch, std::size_t replica,
                                                     std::size_t decoder) override;
  void decode(std::size_t batch, std::size_t decoder,
              std::unique_ptr<PendingHandOver> latents) override;
  void wait_idly() override {
    if (traces_ != nullptr) traces_->write_if_due();
  }
  void release_embeddings(std::size_t batch) override;
  void release(std::size_t batch) override;

  /// → the outcome of the clips on all ranks. Collective over the world.
  MadeClips finish_together(bool complete);

 private:
  class PendingInputs;
  class PendingLatents;

  BatchState& opened(std::size_t batch);
  MessageKey key(MessageKey::Kind kind, std::size_t batch, const Clip& clip) const {
    return {kind, clip.index(), static_cast<std::int32_t>(batch)};
  }
  const ClipPlan& clip_plan(const Clip& clip) const { return planned_.clip_plan(clip, *plan_); }
  void read_conditioning(BatchState& batch, std::size_t replica) const;
  void take_input(BatchState& batch, std::size_t clip, std::size_t replica, const Tensor& input,
                  const Tensor& vision) const;
  void write(const Clip& clip, std::size_t decoder, const Sharded& latents, const Sharded& video,
             const Tensor& embeddings);

  const Job& job_;
  const JobPlan& planned_;
  const Plan* plan_;  ///< planned_.plan, and for the last clips planned_.tail
  comm::Group world_;
  std::vector<BatchOutline> batches_;
  /// Of the batches that this rank works on, and of those with clips that have failed: a job may
  /// have a million batches.
  std::map<std::size_t, BatchState> states_;
  TraceWriter* traces_;
  StepTrial* trial_;
  MemoryWatch* memory_;
  std::int64_t channels_;  ///< of embeddings
  Failures failures_;
  /// Clips, on the first rank of the group that did it.
  std::vector<int> written_, saved_, previews_;
  Stages stages_;
  PacedVote text_vote_;
  std::int64_t last_written_ = trace::now_ns();
};

}  // namespace reelmesh::pipeline
