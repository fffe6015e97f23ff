#include "train/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/clones.hpp"
#include "base/error.hpp"
#include "ops/parallel.hpp"

namespace reelmesh::train {
namespace {

constexpr std::int64_t elements_of_task = std::int64_t{1} << 14;

// The numbers of an update in AdamW, computed in float64 and rounded once, as PyTorch does.
struct AdamW {
  AdamW(const Update& by, const TrainSettings& s)
      : factor(static_cast<float>(by.factor)),
        decay(static_cast<float>(1 - by.rate * s.weight_decay)),
        first_weight(static_cast<float>(1 - s.beta1)),
        first_kept(1 - first_weight),
        second_kept(static_cast<float>(s.beta2)),
        second_weight(static_cast<float>(1 - s.beta2)),
        epsilon(static_cast<float>(s.epsilon)) {
    const auto step = static_cast<double>(by.step);
    const double first_correction = 1 - std::pow(s.beta1, step);
    const double second_correction = 1 - std::pow(s.beta2, step);
    step_size = static_cast<float>(-(by.rate / first_correction));
    second_root = static_cast<float>(std::sqrt(second_correction));
  }

  [[gnu::always_inline]] void operator()(float& parameter, float gradient, float& first,
                                         float& second) const {
    gradient *= factor;
    parameter *= decay;
    const float difference = gradient - first;
    // torch.lerp begins from the nearer end.
    first = first_weight < 0.5F ? first + first_weight * difference
                                : gradient - difference * first_kept;
    second = second * second_kept + second_weight * gradient * gradient;
    const float denominator = std::sqrt(second) / second_root + epsilon;
    parameter += step_size * first / denominator;
  }

  float factor, decay, first_weight, first_kept, second_kept, second_weight, epsilon;
  float step_size = 0, second_root = 0;
};

REELMESH_CLONES void update_elements(const AdamW& adamw, float* __restrict parameters,
                                     const float* __restrict gradients, float* __restrict first,
                                     float* __restrict second, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    adamw(parameters[i], gradients[i], first[i], second[i]);
  }
}

}  // namespace

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

int moments_of(OptimizerKind optimizer) { return optimizer == OptimizerKind::adamw ? 2 : 0; }

void update(std::span<float> parameters, std::span<const float> gradients, std::span<float> first,
            std::span<float> second, const Update& by, const TrainSettings& settings) {
  const std::size_t count = parameters.size();
  const std::size_t moments = moments_of(settings.optimizer) == 2 ? count : 0;
  expect(gradients.size() == count && first.size() == moments && second.size() == moments,
         "an update of {} parameters has {} gradients and {} and {} moments", count,
         gradients.size(), first.size(), second.size());
  if (settings.optimizer == OptimizerKind::sgd) {
    const auto factor = static_cast<float>(by.factor), rate = static_cast<float>(-by.rate);
    ops::parallel_parts(std::ssize(parameters), elements_of_task,
                        [&](std::int64_t begin, std::int64_t size) {
                          float* const values = parameters.data() + begin;
                          const float* const of_values = gradients.data() + begin;
                          for (std::int64_t i = 0; i < size; ++i)
                            values[i] += rate * (of_values[i] * factor);
                        });
    return;
  }
  const AdamW adamw(by, settings);
  ops::parallel_parts(std::ssize(parameters), elements_of_task,
                      [&](std::int64_t begin, std::int64_t size) {
                        update_elements(adamw, parameters.data() + begin, gradients.data() + begin,
                                        first.data() + begin, second.data() + begin, size);
                      });
}

}  // namespace reelmesh::train
