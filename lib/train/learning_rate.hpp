#pragma once
// The learning rate of each step, and clipping of gradients by their global norm.
#include <cstdint>
#include <optional>

#include "job/train_settings.hpp"

namespace reelmesh::train {

/// The learning rate of a step; the first step has the number 0. As get_scheduler of diffusers
/// 0.36: it rises linearly from 0 in train.warmup steps; after that it follows train.schedule, to
/// train.min-rate (lr_end of diffusers' polynomial schedule) at train.steps.
double learning_rate(const TrainSettings& settings, std::int64_t step);

/// The factor by which gradients of this global norm are multiplied, as clip_grad_norm_ of PyTorch:
/// limit / (norm + 1e-6), at most 1; without a limit, 1. It is NaN or 0 for a norm that is not
/// finite.
double clip_factor(double norm, const std::optional<double>& limit);

}  // namespace reelmesh::train
