#pragma once
// The three stages of the pipeline, each on the ranks that the plan assigns to it. A stage returns
// this rank's part of its result. Ranks outside the stage return an empty one at once.
#include <array>
#include <functional>
#include <optional>

#include "job/denoise.hpp"
#include "job/job_plan.hpp"
#include "models/t5/t5.hpp"
#include "pipeline/failures.hpp"
#include "pipeline/work.hpp"

namespace reelmesh::pipeline {

/// How stages compute.
struct Computing {
  DType dtype = DType::float32;
  Numerics numerics;
  Device device;

  /// Those of a part, for layers that compute so.
  Checkpoint weights(const Family& family, ModelPart part) const {
    return family.open(part).on(device, numerics);
  }
};

/// T5, with its layers distributed over the ranks of the text group by the device map. Texts are
/// pipelined through the ranks, so that several ranks are busy at once.
class TextStage {
 public:
  TextStage(const comm::Group& world, const JobPlan& planned, const Computing& computing);

  void load();
  void release();
  /// → [token, text, channel] on the rank that has the final norm, plan.embeddings_rank().
  Tensor operator()(const Clip& clip);
  const comm::Group& group() const { return group_; }

 private:
  Tensor encode(const std::vector<std::int32_t>& ids);

  const JobPlan& planned_;
  Computing computing_;
  comm::Group group_, own_;  ///< own_: this rank only
  std::vector<DeviceMap::Stage> parts_;
  std::vector<std::optional<T5Layers>> layers_;  ///< for each part, set on the rank that holds it
  // The last negative prompt is cached, since the clips of a job usually have the same.
  std::vector<std::int32_t> last_negative_;
  Tensor last_negative_embedding_;
};

/// What denoising a batch gives.
struct Denoised {
  /// For each clip what is decoded, float32 latents [frame, channel, row, column] on the host
  /// without dropped frames: this rank's box latents_to_decoding().from. None if `stopped`.
  std::vector<Tensor> latents;
  std::vector<bool> failed;  ///< per clip
  std::vector<bool> saved;   ///< per clip: whether it was saved on the way
  bool stopped = false;      ///< before the last step; the clips are saved
  std::string lack;  ///< of memory, if the batch was stopped for it within a step (Interrupted)
};

/// Transformer and sampler on the denoising groups, with the weights of the transformer where the
/// plan says. Sharded weights are still gathered, after regroup(), among the ranks of the group in
/// which they were loaded; new groups must not separate these ranks.
class DenoiseStage {
 public:
  /// The job must outlive the object.
  DenoiseStage(const comm::Group& world, const JobPlan& planned, const Computing& computing,
               const Job& job);

  void load();
  void release() { model_.reset(); }
  /// From now on the groups are those of this plan of the same job. Collective over the world.
  void regroup(const comm::Group& world, const Plan& plan);
  /// Denoises a batch on the group of one replica, from its saved steps on if it has some, and
  /// saves it on the way. video_latents: as Denoising takes them. at_end: as of
  /// Denoising::step_together. after_step: called on the ranks of the group; → whether the batch is
  /// to stop here. Ends early if all clips have failed.
  Denoised operator()(const Batch& batch, std::size_t replica,
                      std::span<const Conditioning> conditioning,
                      std::span<const Tensor> video_latents,
                      const std::function<void(bool finished)>& at_end,
                      const std::function<bool()>& after_step, Failures& failures) const;
  const comm::Group& group(std::size_t replica) const { return groups_[replica]; }

 private:
  const JobPlan& planned_;
  const Plan* plan_;
  Computing computing_;
  const Job& job_;
  std::vector<comm::Group> groups_;  ///< per replica
  std::unique_ptr<const Denoiser> model_;
};

/// The decoder of the autoencoder on the decoding groups.
class DecodeStage {
 public:
  DecodeStage(const comm::Group& world, const JobPlan& planned, const Computing& computing);

  void load();
  void release() { decoder_.reset(); }
  void regroup(const comm::Group& world, const Plan& plan);  ///< as DenoiseStage::regroup
  /// decoder: index in Roles::decode.
  const comm::Group& group(std::size_t decoder) const { return groups_[decoder]; }
  const std::vector<comm::Group>& groups() const { return groups_; }
  const ClipPlan& clip_plan(const Clip& clip) const { return planned_.clip_plan(clip, *plan_); }
  /// latents: this rank's box latents_to_decoding().taken, on the host. → the video, sharded over
  /// the group; nullopt on all its ranks if the clip has failed.
  std::optional<Sharded> operator()(const Clip& clip, std::size_t decoder, const Tensor& latents,
                                    Failures& failures) const;

 private:
  const JobPlan& planned_;
  const Plan* plan_;
  Computing computing_;
  std::vector<comm::Group> groups_;
  std::unique_ptr<const Decoder> decoder_;
};

/// What a clip begins from, encoded.
struct EncodedInput {
  /// This rank's box, float32 [frame, channel, row, column] on the host, as encoded_layout() cuts
  /// it.
  Tensor latents;
  /// Clip::vision of the model's type on the host, on the first rank of the group; otherwise empty.
  Tensor vision;
};

/// The encoder of the autoencoder on the decoding groups, for the images and videos that clips
/// begin from; and on the first rank of each group the vision encoder, if the model has one.
class InputStage {
 public:
  /// decoding: with the groups; must outlive the object.
  InputStage(const JobPlan& planned, const Computing& computing, const DecodeStage& decoding)
      : planned_(planned), computing_(computing), decoding_(decoding) {}

  void load();
  void release() {
    encoder_.reset();
    vision_.reset();
  }
  /// decoder: index in Roles::decode.
  EncodedInput operator()(const Clip& clip, std::size_t decoder) const;

 private:
  Tensor embed(const Clip& clip) const;

  const JobPlan& planned_;
  Computing computing_;
  const DecodeStage& decoding_;
  std::unique_ptr<const Encoder> encoder_;
  std::unique_ptr<const VisionEncoder> vision_;
};

/// The stages of a job and which of them have their weights in memory on this rank, if it has a
/// part in them: first the text encoder only, then the encoder of inputs only, then transformer and
/// decoder, both or, if the plan offloads them, one at a time. In split mode the second of both is
/// loaded when it is first needed, and the decoding ranks have encoder and decoder together while
/// inputs are left.
class Stages {
 public:
  Stages(const comm::Group& world, const Job& job, const JobPlan& planned, Device device);
  Stages(const Stages&) = delete;  // encode_input refers to decode_clip
  Stages& operator=(const Stages&) = delete;

  /// Loads the weights of this stage, in phased mode also of the one that is resident together with
  /// it, after releasing the others. The ranks of a stage's group call it together.
  void enter(Stage stage);
  /// All inputs of the job are encoded.
  void leave_input();

  TextStage encode;
  DenoiseStage denoise_batch;
  DecodeStage decode_clip;
  InputStage encode_input;

 private:
  void load(Stage stage);
  void release(Stage stage);
  /// Whether the weights of `other`, if they are loaded, stay when `entered` is entered.
  bool stays(Stage other, Stage entered) const;

  const Plan& plan_;
  bool keeps_video_;
  std::array<bool, 4> loaded_{};
  std::optional<Stage> entered_;
};

}  // namespace reelmesh::pipeline
