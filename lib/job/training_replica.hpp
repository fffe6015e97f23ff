#pragma once
// The interface of lib/train to plans of a training: dry runs call what a training does on a rank.
#include <functional>
#include <memory>
#include <optional>

#include "job/train_settings.hpp"
#include "models/common/encoder.hpp"
#include "models/common/trainable.hpp"
#include "plan/decode.hpp"

namespace reelmesh {

/// How the ranks of a replica divide the latents [1, row, column] of a clip's image while it is
/// encoded. latents: of the clip, [frame, row, column].
inline Layout image_latents(const Shape& latents, int ranks) {
  return decode_layout({.latents = {1, latents.at(1), latents.at(2)}}, ranks).latents;
}

/// How the image of a clip becomes what a model takes of it (TrainingSample::image).
struct ImageEncoding {
  const Encoder* encoder = nullptr;  ///< null: the model takes none
  double scale = 1;                  ///< Family::image_scale()
};

/// A model on the ranks of a replica, with the values that are trained and what the optimizer keeps
/// of them. A step is compute() and add() for each round of clips, one for each replica, and then
/// update(). All members are collective over the replica, add() and update() also over the same
/// rank of all replicas.
class TrainingReplica {
 public:
  virtual ~TrainingReplica() = default;
  TrainingReplica() = default;
  TrainingReplica(const TrainingReplica&) = delete;
  TrainingReplica& operator=(const TrainingReplica&) = delete;

  /// How the ranks divide the pixels of a clip's image, [row, column, 3]. Only of models that take
  /// one.
  virtual const Layout& image_pixels() const = 0;
  /// TrainingSample::image. pixels: this rank's box of image_pixels(), float32 from −1 to 1 on the
  /// host; noise: as Encoder::sample() takes it, for latents [1, channel, row, column], of which
  /// `box` is this rank's.
  using ImageNoise = std::function<void(const Box& box, std::span<float> values)>;
  virtual Tensor encode_image(const Tensor& pixels, const ImageNoise& noise) const = 0;

  /// The gradient of a clip.
  struct Computed {
    ops::ExactSum losses;  ///< as Trainable::Prepared::gradient_together()
    /// This rank's part of all matrices: float32 [element] on the host. Empty if there is one
    /// replica: then it is added at once.
    Tensor gradient;
  };
  virtual Computed compute(const TrainingSample& sample) = 0;
  /// Adds the gradients of one round: those of the first `clips` replicas, in their order. own: as
  /// Computed::gradient; empty on a replica that has computed none.
  virtual void add(const Tensor& own, std::int64_t clips) = 0;
  /// Changes the values by the mean of the gradients that were added. step: from 0. norm: of the
  /// mean, before clipping. clips: of the step.
  virtual void update(std::int64_t step, double norm, std::int64_t clips) = 0;
  /// What the model computes with from now on.
  virtual void use_values() = 0;
  /// Which columns of the gradients each rank has.
  virtual const TokenColumns& columns() const = 0;
};

/// task: of the clips that are learned from. peers: the ranks with the same part in all replicas,
/// in their order. model, settings and the encoder must outlive the result.
using MakeTrainingReplica = std::function<std::unique_ptr<TrainingReplica>(
    Trainable& model, const DenoiseTask& task, const comm::Group& peers,
    const TrainSettings& settings, const ImageEncoding& images)>;

/// What plan_job() must know of a training beside the job.
struct TrainingToPlan {
  MakeTrainingReplica make;
  /// Host memory that a rank takes while it reads the frames of a video, with the frames.
  std::int64_t reading_bytes = 0;
};

/// The LoRA that is trained, as a model needs it; none if parameters of the model are.
inline std::optional<LoraShape> lora_shape(const TrainSettings& settings) {
  return settings.method->lora(settings);
}

/// settings: of a plan.
inline TrainingMode training_mode(const TrainSettings& settings) {
  return {lora_shape(settings), settings.recomputes_blocks.value_or(true)};
}

}  // namespace reelmesh
