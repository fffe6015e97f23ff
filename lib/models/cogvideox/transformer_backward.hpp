#pragma once
// Training of CogVideoX's transformer by LoRA: its backward pass, by hand. Only inputs of blocks
// are kept in the forward pass; in the backward pass each block is computed again from its input
// (Chen et al. 2016), so that memory grows by one array of tokens for a block.
#include "models/cogvideox/transformer.hpp"
#include "models/common/trainable.hpp"

namespace reelmesh {

class CogVideoXTrainable final : public Trainable {
 public:
  /// Computes on weights.device(). Error(usage) for a target that no block has. Collective over
  /// placement.group, unless weights are replicated.
  CogVideoXTrainable(const Checkpoint& weights, const CogVideoXConfig& config, DType dtype,
                     const WeightPlacement& placement, const LoraShape& lora);

  Device device() const override { return model_.device(); }
  const std::vector<LoraTarget>& targets() const override { return targets_; }
  void set(std::span<const LoraValues> values) override;
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task) const override;

 private:
  std::vector<BlockAdapters> make_adapters(const CogVideoXConfig& config, DType dtype,
                                           const Checkpoint& weights, const LoraShape& lora);

  std::vector<LoraTarget> targets_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
  CogVideoXTransformer model_;
};

}  // namespace reelmesh
