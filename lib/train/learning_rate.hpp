#pragma once
// By how much parameters follow their gradients in a step: learning rates and limits of gradients.
#include <cstdint>
#include <optional>

#include "job/train_settings.hpp"

namespace reelmesh::train {

/// The learning rate of a step, 0 for the first one, as get_scheduler of diffusers 0.36: warm-up
/// from 0 in train.warmup steps, then constant, or linear or half a cosine to 0 at train.steps.
double learning_rate(const TrainSettings& settings, std::int64_t step);

/// By what gradients of this global norm are multiplied, as clip_grad_norm_ of PyTorch:
/// limit / (norm + 1e-6), at most 1. Without a limit 1. A norm that is not finite gives NaN or 0.
double clip_factor(double norm, const std::optional<double>& limit);

}  // namespace reelmesh::train
