#pragma once
// The interface of lib/train to plans of a training: dry runs call what a training does on a rank.
#include <functional>
#include <memory>
#include <optional>

#include "job/train_settings.hpp"
#include "models/common/trainable.hpp"

namespace reelmesh {

/// A model on the ranks of a replica, with the values that are trained and what the optimizer keeps
/// of them. A step is compute() and add() for each round of clips, one for each replica, and then
/// update(). All members are collective over the replica, add() also over the same rank of all
/// replicas.
class TrainingReplica {
 public:
  virtual ~TrainingReplica() = default;
  TrainingReplica() = default;
  TrainingReplica(const TrainingReplica&) = delete;
  TrainingReplica& operator=(const TrainingReplica&) = delete;

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
/// in their order. model and settings must outlive the result.
using MakeTrainingReplica = std::function<std::unique_ptr<TrainingReplica>(
    Trainable& model, const DenoiseTask& task, const comm::Group& peers,
    const TrainSettings& settings)>;

/// What plan_job() must know of a training beside the job.
struct TrainingToPlan {
  MakeTrainingReplica make;
  /// Host memory that a rank takes while it reads the frames of a video, with the frames.
  std::int64_t reading_bytes = 0;
};

/// The LoRA that is trained, as a model needs it; none if all parameters are.
inline std::optional<LoraShape> lora_shape(const TrainSettings& settings) {
  if (settings.method == TrainMethod::full) return std::nullopt;
  const LoraSettings& lora = settings.lora;
  return LoraShape{.targets = lora.targets,
                   .rank = lora.rank,
                   .alpha = lora.alpha.value_or(static_cast<double>(lora.rank)),
                   .ranks = lora.rank_pattern,
                   .alphas = lora.alpha_pattern};
}

}  // namespace reelmesh
