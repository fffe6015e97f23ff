#pragma once
// Training of CogVideoX's transformer, of a LoRA or of all its parameters: its backward pass, by
// hand. Only inputs of blocks are kept in the forward pass; in the backward pass each block is
// computed again from its input (Chen et al. 2016), so that memory grows by one array of tokens for
// a block.
#include <optional>

#include "models/cogvideox/trained_weights.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/common/trainable.hpp"

namespace reelmesh {

class CogVideoXTrainable final : public Trainable {
 public:
  /// Computes on weights.device(). Without a LoRA all parameters are trained. Error(usage) for a
  /// target that no block has, and for a pattern that names no target. Collective over
  /// placement.group, unless weights are replicated.
  CogVideoXTrainable(const Checkpoint& weights, const CogVideoXConfig& config, DType dtype,
                     const WeightPlacement& placement, const std::optional<LoraShape>& lora);

  Device device() const override { return model_->device(); }
  const std::vector<TrainedMatrix>& matrices() const override {
    return weights_ ? weights_->matrices() : lora_matrices_;
  }
  const std::vector<LoraTarget>& targets() const override { return targets_; }
  Tensor initial(std::size_t matrix) const override {
    return weights_->initial(checkpoint_, matrix);
  }
  const Shape& stored_shape(std::size_t matrix) const override { return weights_->shape(matrix); }
  /// All parameters: makes the model anew of these values. Then collective also over
  /// placement.group, as the constructor.
  void set_together(const MatrixValues& values) override;
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task) const override;

 private:
  std::vector<BlockAdapters> make_adapters(const LoraShape& lora);

  Checkpoint checkpoint_;
  CogVideoXConfig config_;
  DType dtype_;
  WeightPlacement placement_;
  std::vector<LoraTarget> targets_;
  std::vector<TrainedMatrix> lora_matrices_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::optional<TrainedWeights> weights_;  ///< unless a LoRA is trained
  std::optional<CogVideoXTransformer> model_;
};

}  // namespace reelmesh
