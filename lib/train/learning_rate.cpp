#include "train/learning_rate.hpp"

#include <algorithm>

namespace reelmesh::train {

double learning_rate(const TrainSettings& settings, std::int64_t step) {
  const std::int64_t warmup = settings.warmup;
  if (step < warmup) {
    return settings.learning_rate * (static_cast<double>(step) / static_cast<double>(warmup));
  }
  const double share =
      settings.schedule->share(step - warmup, settings.steps - warmup, settings.rate_shape);
  const double min = settings.min_rate;
  return min + (settings.learning_rate - min) * std::max(share, 0.0);
}

double clip_factor(double norm, const std::optional<double>& limit) {
  if (!limit) return 1;
  const double factor = *limit / (norm + 1e-6);
  return factor > 1 ? 1 : factor;  // NaN stays
}

}  // namespace reelmesh::train
