#pragma once
// The interface of a diffusion transformer that is being trained to the training loop.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layout/token_columns.hpp"
#include "models/common/adapter.hpp"
#include "models/common/denoiser.hpp"
#include "ops/exact_sum.hpp"

namespace reelmesh {

/// Which layers get a LoRA, and how large.
struct LoraShape {
  std::vector<std::string> targets;  ///< the ends of modules: "to_q", "ff.net.0.proj"
  std::int64_t rank = 64;
  double factor = 1;  ///< alpha / rank
};

/// One clip of a training step.
struct TrainingSample {
  std::int64_t timestep = 0;
  /// Noisy latents and what the model is to predict of them: this rank's box, float32 [frame,
  /// channel, row, column] on the host.
  Tensor latents, target;
  Tensor text;  ///< [token, 1, channel] of the model's type: this rank's tokens
};

/// What a step gives of one clip.
struct SampleGradient {
  ops::ExactSum squares;  ///< of prediction − target over this rank's box
  /// Of each target, of the mean of the squares over all elements: this rank's columns.
  std::vector<LoraValues> gradients;
};

class Trainable {
 public:
  /// Clips of one size on a group of ranks.
  class Prepared {
   public:
    virtual ~Prepared() = default;
    Prepared() = default;
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;
    /// Collective over the group.
    virtual SampleGradient gradient_together(const TrainingSample& sample) = 0;
    /// Which columns of the gradients each rank of the group has.
    virtual const TokenColumns& columns() const = 0;
  };

  virtual ~Trainable() = default;
  Trainable() = default;
  Trainable(const Trainable&) = delete;
  Trainable& operator=(const Trainable&) = delete;

  virtual Device device() const = 0;
  /// In the order of the model's layers.
  virtual const std::vector<LoraTarget>& targets() const = 0;
  /// What the targets compute with from now on: all columns. Must be called before
  /// gradient_together().
  virtual void set(std::span<const LoraValues> values) = 0;
  /// task.branches is 1. The model must outlive the result. Collective over task.group.
  virtual std::unique_ptr<Prepared> prepare(const DenoiseTask& task) const = 0;
};

}  // namespace reelmesh
