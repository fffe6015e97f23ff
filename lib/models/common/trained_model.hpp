#pragma once
// A model in training: its forward function, whose gradients a tape computes.
#include "models/common/model_training.hpp"
#include "models/common/training_loss.hpp"

namespace reelmesh {

/// A transformer that can be trained. It is made by a LayerMaker with the training.
class TrainableDenoiser : public Denoiser {
 public:
  /// Clips of one size, with what all steps share.
  class Clip {
   public:
    virtual ~Clip() = default;
    Clip() = default;
    Clip(const Clip&) = delete;
    Clip& operator=(const Clip&) = delete;
    /// How ranks divide parameters: by columns of the clip's tokens.
    virtual const TokenColumns& columns() const = 0;
  };
  /// task.branches is 1. Collective over task.group.
  virtual std::unique_ptr<const Clip> prepare_training(const DenoiseTask& task) const = 0;
  /// The prediction for this rank's box, float32 [frame, channel, row, column] on the model's
  /// device. clip: of prepare_training(). Collective over the task's group.
  virtual Tensor predict_together(const Clip& clip, const TrainingSample& sample) const = 0;

  /// A clip on one rank, and a sample of it, on this host of shapes: of any size.
  struct Example {
    DenoiseTask task;
    TrainingSample sample;
  };
  virtual Example example(Device host) const = 0;
};

class TrainedModel final : public Trainable {
 public:
  /// Makes the transformer of these weights.
  using Make = std::function<std::unique_ptr<const TrainableDenoiser>(
      const Checkpoint& weights, const WeightPlacement& placement, ModelTraining& training)>;
  /// The first dry run of a step tells which layers it uses, and in which order. Errors as
  /// LayerMaker::finish(). Collective over placement.group, unless weights are replicated.
  TrainedModel(const Checkpoint& weights, DType dtype, const WeightPlacement& placement,
               const TrainingMode& mode, std::optional<IddpmLoss> loss, const Make& make);

  Device device() const override { return checkpoint_.device(); }
  const std::vector<TrainedMatrix>& matrices() const override { return training_.matrices(); }
  const std::vector<LoraTarget>& targets() const override { return training_.targets(); }
  Tensor initial(std::size_t matrix) const override {
    return training_.initial(checkpoint_, matrix);
  }
  const Shape& stored_shape(std::size_t matrix) const override {
    return training_.stored_shape(matrix);
  }
  /// All parameters: in the memory of the model's weights. Then collective also over
  /// placement.group, as the constructor.
  void set_together(const MatrixValues& values) override;
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task) const override;

 private:
  void record_uses(DType dtype, const Make& make);

  Checkpoint checkpoint_;
  std::optional<IddpmLoss> loss_;
  bool recomputes_blocks_;
  ModelTraining training_;
  std::unique_ptr<const TrainableDenoiser> model_;
};

/// A model of this class in training. Arguments as of TrainedModel.
template <class Model, class Config>
std::unique_ptr<Trainable> in_training(const Checkpoint& weights, const Config& config, DType dtype,
                                       const WeightPlacement& placement, const TrainingMode& mode,
                                       std::optional<IddpmLoss> loss = {}) {
  const auto make = [config, dtype](const Checkpoint& from, const WeightPlacement& where,
                                    ModelTraining& training) {
    return std::make_unique<const Model>(from, config, dtype, where, &training);
  };
  return std::make_unique<TrainedModel>(weights, dtype, placement, mode, std::move(loss), make);
}

}  // namespace reelmesh
