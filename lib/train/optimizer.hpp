#pragma once
// Optimizers on parts of parameters: elementwise, so that whichever rank updates an element
// computes the same bits. Host only.
#include <cstdint>
#include <optional>
#include <span>

#include "job/train_settings.hpp"

namespace reelmesh::train {

/// The learning rate of a step, 0 for the first one, as get_scheduler of diffusers 0.36: warm-up
/// from 0 in train.warmup steps, then constant, or linear or half a cosine to 0 at train.steps.
double learning_rate(const TrainSettings& settings, std::int64_t step);

/// By what gradients of this global norm are multiplied, as clip_grad_norm_ of PyTorch:
/// limit / (norm + 1e-6), at most 1. Without a limit 1. A norm that is not finite gives NaN or 0.
double clip_factor(double norm, const std::optional<double>& limit);

/// How many moments of the gradients the optimizer keeps for each parameter.
int moments_of(OptimizerKind optimizer);

/// What an update of all parameters has in common.
struct Update {
  std::int64_t step = 1;  ///< number of updates with this one
  double rate = 0;        ///< the learning rate
  double factor = 1;      ///< of the gradients: clip_factor
};

/// Updates some parameters and their moments in place. Spans have the same length, except that SGD
/// has no moments; moments are 0 before the first update.
///
/// AdamW as torch.optim.AdamW of PyTorch 2 on the CPU (decoupled weight decay, both bias
/// corrections, its order of operations in float32): results agree to rounding. SGD:
/// parameter − rate · gradient.
void update(std::span<float> parameters, std::span<const float> gradients, std::span<float> first,
            std::span<float> second, const Update& by, const TrainSettings& settings);

}  // namespace reelmesh::train
