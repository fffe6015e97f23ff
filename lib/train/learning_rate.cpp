#include "train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace reelmesh::train {

double learning_rate(const TrainSettings& settings, std::int64_t step) {
  const auto fraction = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
  };
  const std::int64_t warmup = settings.warmup, steps = settings.steps;
  if (step < warmup) return settings.learning_rate * fraction(step, warmup);
  double share = 1;
  if (settings.schedule == RateSchedule::linear) {
    share = fraction(steps - step, steps - warmup);
  } else if (settings.schedule == RateSchedule::cosine) {
    share = 0.5 * (1 + std::cos(std::numbers::pi * fraction(step - warmup, steps - warmup)));
  }
  return settings.learning_rate * std::max(share, 0.0);
}

double clip_factor(double norm, const std::optional<double>& limit) {
  if (!limit) return 1;
  const double factor = *limit / (norm + 1e-6);
  return factor > 1 ? 1 : factor;  // NaN stays
}

}  // namespace reelmesh::train
