#pragma once
// The three stages of the pipeline, each on the ranks that the plan gives it. A stage returns this
// rank's part of its result, which is empty on ranks outside the stage; these return at once.
#include <array>
#include <functional>
#include <optional>

#include "pipeline/denoise.hpp"
#include "pipeline/job_plan.hpp"

namespace reelmesh::pipeline {

/// T5, its layers on the ranks of the text group by the device map. Texts follow one another
/// through the ranks, so that several ranks are busy at once.
class TextStage {
 public:
  TextStage(const comm::Group& world, const Job& job, const JobPlan& planned, Device device);

  void load();
  void release();
  /// → [token, text, channel] on the rank that has the final norm, plan.embeddings_rank().
  Tensor operator()(const Clip& clip);

 private:
  Tensor encode(const std::vector<std::int32_t>& ids);

  const Job& job_;
  const JobPlan& planned_;
  Device device_;
  comm::Group group_;
  std::vector<DeviceMap::Stage> parts_;
  std::vector<std::optional<T5Layers>> layers_;  ///< of each part, on the rank that holds it
  // Clips of a job mostly share their negative prompt: the last one is kept.
  std::vector<std::int32_t> last_negative_;
  Tensor last_negative_embedding_;
};

/// A transformer and a sampler on the denoising groups, each of which holds all weights.
class DenoiseStage {
 public:
  DenoiseStage(const comm::Group& world, const Job& job, const JobPlan& planned, Device device);

  void load();
  void release() { model_.reset(); }
  /// The batch's clips on one of the groups. → of each clip float32 latents [frame, channel, row,
  /// column] on the host, without dropped frames: this rank's box of latents_to_decoding().given.
  /// on_step: called after each step on the ranks of the group.
  std::vector<Tensor> operator()(const Batch& batch, std::size_t replica,
                                 std::span<const Conditioning> conditioning,
                                 const std::function<void()>& on_step) const;

 private:
  const Job& job_;
  const JobPlan& planned_;
  Device device_;
  std::vector<comm::Group> groups_;  ///< of each replica
  std::unique_ptr<const Denoiser> model_;
};

/// An autoencoder's decoder on the decoding group.
class DecodeStage {
 public:
  DecodeStage(const comm::Group& world, const Job& job, const JobPlan& planned, Device device);

  void load();
  void release() { decoder_.reset(); }
  const comm::Group& group() const { return group_; }
  /// latents: this rank's box of latents_to_decoding().taken, on the host → uint8 [frame, row,
  /// column, 3] over the group.
  Sharded operator()(const Clip& clip, const Tensor& latents) const;

 private:
  const Job& job_;
  const JobPlan& planned_;
  Device device_;
  comm::Group group_;
  std::unique_ptr<const Decoder> decoder_;
};

/// The stages of a job and which of them have their weights in memory: all in split mode, where a
/// rank has one stage; in phased mode the text encoder alone, then transformer and decoder, one at
/// a time where the plan offloads them.
class Stages {
 public:
  enum Stage { text, denoise, decode };

  Stages(const comm::Group& world, const Job& job, const JobPlan& planned, Device device);

  /// Releases the weights that are not resident together with this stage's, and loads those that
  /// are. Every rank calls it, in the order of the stages.
  void enter(Stage stage);

  TextStage encode;
  DenoiseStage denoise_batch;
  DecodeStage decode_clip;

 private:
  bool together(Stage a, Stage b) const;

  const Plan& plan_;
  std::array<bool, 3> loaded_{};
};

}  // namespace reelmesh::pipeline
