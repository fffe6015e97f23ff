#pragma once
// Training of Open-Sora's transformers, of all their parameters: the backward pass, by hand. As in
// the forward pass frames and positions are cut in turn, so that both kinds of attention have whole
// sequences; only inputs of pairs of blocks are kept, and each pair is computed again before its
// backward pass. Cross-attention, whose keys and values belong to all tokens, is computed by heads:
// each rank has some of them, for all tokens in global order (layout/token_columns.hpp).
#include <optional>

#include "models/common/trainable.hpp"
#include "models/opensora/trained_weights.hpp"
#include "models/opensora/transformer.hpp"
#include "sampler/iddpm_loss.hpp"

namespace reelmesh {

class STDiTTrainable final : public Trainable {
 public:
  /// Computes on weights.device(). loss: of release 1.0; without one the loss is the squared error
  /// of the first half of the predicted channels, the velocity of release 1.2. Collective over
  /// placement.group, unless weights are replicated.
  STDiTTrainable(const Checkpoint& weights, const STDiTConfig& config, DType dtype,
                 const WeightPlacement& placement, std::optional<IddpmLoss> loss);

  Device device() const override { return model_->device(); }
  const std::vector<TrainedMatrix>& matrices() const override { return weights_.matrices(); }
  const std::vector<LoraTarget>& targets() const override { return no_targets_; }
  Tensor initial(std::size_t matrix) const override {
    return weights_.initial(checkpoint_, matrix);
  }
  const Shape& stored_shape(std::size_t matrix) const override { return weights_.shape(matrix); }
  /// Makes the model anew of these values; then collective also over placement.group.
  void set_together(const MatrixValues& values) override;
  /// TrainingSample::text has all tokens of the caption, on every rank.
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task) const override;

 private:
  Checkpoint checkpoint_;
  STDiTConfig config_;
  DType dtype_;
  WeightPlacement placement_;
  std::optional<IddpmLoss> loss_;
  TrainedWeights weights_;
  std::vector<LoraTarget> no_targets_;
  std::optional<STDiT> model_;
};

}  // namespace reelmesh
