#pragma once
// Training steps on the replicas of a plan.
#include <array>
#include <optional>

#include "train/order.hpp"
#include "train/replica.hpp"
#include "train/samples.hpp"

namespace reelmesh::train {

/// The loss of one sample at a timestep.
struct SampleLoss {
  double loss = 0;
  std::int64_t sample = 0;  ///< which of the usable ones
  double timestep = 0;
  /// If the loss is not finite: the first rank of the world that found it; otherwise −1.
  int failed_rank = -1;
};

/// What a step gives; the same on all ranks that train.
struct StepResult {
  double loss = 0;           ///< mean over the samples
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  std::vector<SampleLoss> samples;  ///< of the batch, in its order
};

/// What a validation gives; the same on all ranks that train.
struct ValidationResult {
  std::array<double, validation_quarters> loss{};  ///< at each timestep, the mean over the clips
  std::vector<SampleLoss> samples;                 ///< of each clip all timesteps, ascending
};

/// The replicas, each a group of ranks with the model. Sample i of a batch is computed by replica i
/// mod replicas, and all have one size; gradients are added in the order of samples, so that sums
/// do not depend on the number of replicas: with settings.reproducible. Otherwise each replica adds
/// its own first, and there is one exchange of gradients in a step instead of one for each of its
/// samples.
class Steps {
 public:
  /// files: of all samples, as cached_files() gives them. samples, files and settings must
  /// outlive the object. Loads the model. Collective over the world.
  Steps(const comm::Group& world, const Samples& samples, const CachedFiles& files,
        const TrainSettings& settings, const pipeline::Computing& computing);

  bool trains() const { return group_.member(); }  ///< whether this rank does
  /// Computes a step, from 0, and updates the parameters, unless a loss or the norm of the gradient
  /// is not finite. Collective over all ranks that train.
  StepResult step_together(std::int64_t step);
  /// The loss of the samples that validate, each at all validation timesteps: of the mean of the
  /// posterior, with noise that depends on train.seed, clip and timestep only. Empty if the job is
  /// to stop before all are computed. Collective over all ranks that train.
  std::optional<ValidationResult> validate_together();
  /// What is to be written, as MatrixValues, of the model's matrices. Collective over all ranks
  /// that train.
  std::vector<Tensor> results_together(std::size_t first, std::size_t count) const {
    return own_->parameters().results_together(first, count);
  }
  const Trainable& model() const { return *model_; }

  /// What the model computes with from now on.
  void use_values_together() { own_->use_values(); }

  // Collective over all ranks that train.
  void write_restart(const std::filesystem::path& output, std::int64_t step,
                     const std::string& fingerprint);
  /// → the number of completed steps; 0 if there is no file. Errors as read_training_restart.
  std::int64_t read_restart(const std::filesystem::path& output, const std::string& fingerprint);

 private:
  Box own_latents() const {
    return own_box(layout_.latents.with_axis(1, clip_.latent_channels), group_);
  }
  void set_size_of(std::size_t sample);
  DenoiseTask task() const;
  // From now on the replica computes clips of the size of a sample. Collective over the replica.
  void use_size_together(std::size_t sample);
  // This rank's part of a sample: sample `number` of the run; one that validates; and of what both
  // draw.
  TrainingSample prepare_together(std::int64_t number, std::size_t which) const;
  TrainingSample prepare_validation_together(std::size_t which, int quarter) const;
  TrainingSample with_noise(std::size_t which, const SampleDraws& draws, Tensor x,
                            const Tensor& noise) const;
  // As Open-Sora's trainers tell it: without a fraction.
  double own_fps(std::size_t which) const;
  // What the model takes of its first frame.
  void set_image_together(const SampleFile& file, SampleRandom& random,
                          TrainingSample& sample) const;
  void set_text(std::size_t which, bool drops_caption, TrainingSample& sample) const;
  SampleLoss loss_together(const ops::ExactSum& losses, std::size_t which, double timestep) const;

  const comm::Group& world_;
  const Samples& samples_;
  const CachedFiles& files_;
  const TrainSettings& settings_;
  pipeline::Computing computing_;
  StepOrder order_;
  comm::Group group_;     // of this rank's replica
  comm::Group peers_;     // the ranks with the same part in all replicas, in their order
  comm::Group trainers_;  // the ranks of all replicas
  std::size_t replica_ = 0;
  // Of the size that the replica computes.
  std::size_t bucket_ = 0;
  const TrainingNoise* noise_ = nullptr;
  Clip clip_;
  DenoiseLayout layout_;
  std::unique_ptr<Trainable> model_;
  std::unique_ptr<const Encoder> encoder_;  // only if images are encoded in each step
  std::optional<TrainedReplica> own_;
};

}  // namespace reelmesh::train
