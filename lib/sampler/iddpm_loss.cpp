#include "sampler/iddpm_loss.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace reelmesh {
namespace {

// The approximation of the normal distribution function that Open-Sora uses, and its derivative.
constexpr double cubic = 0.044715;
const double sqrt_2_over_pi = std::sqrt(2 / std::numbers::pi);

double distribution(double x) {
  return 0.5 * (1 + std::tanh(sqrt_2_over_pi * (x + cubic * x * x * x)));
}

double density(double x) {
  const double t = std::tanh(sqrt_2_over_pi * (x + cubic * x * x * x));
  return 0.5 * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * cubic * x * x);
}

struct Likelihood {
  double logarithm = 0, d_log_scale = 0;
};

// Of a value in a bin of width 2/255 around it, which the first and the last bin extend to
// infinity. error: the value minus the mean; log_scale: logarithm of the standard deviation.
Likelihood binned_likelihood(double value, double error, double log_scale) {
  constexpr double half_bin = 1.0 / 255, smallest = 1e-12, end = 0.999;
  const double inverse = std::exp(-log_scale);
  const double upper = inverse * (error + half_bin), lower = inverse * (error - half_bin);
  double probability = distribution(upper) - distribution(lower);
  double slope = lower * density(lower) - upper * density(upper);
  if (value < -end) {
    probability = distribution(upper);
    slope = -upper * density(upper);
  } else if (value > end) {
    probability = 1 - distribution(lower);
    slope = lower * density(lower);
  }
  if (probability < smallest) return {std::log(smallest), 0};
  return {std::log(probability), slope / probability};
}

}  // namespace

IddpmLoss::IddpmLoss(const IddpmConfig& config) {
  check(config);
  alpha_bar_ = alpha_bar_table(config);
  double before = 1;
  for (const double now : alpha_bar_) {
    const double beta = 1 - now / before;
    steps_.push_back({.error_factor = beta * std::sqrt(before) / (1 - now) * std::sqrt(1 / now - 1),
                      .min_log_variance = std::log(beta * (1 - before) / (1 - now)),
                      .max_log_variance = std::log(beta)});
    before = now;
  }
  steps_[0].min_log_variance = steps_[1].min_log_variance;  // the posterior variance is 0 there
}

IddpmLoss::Element IddpmLoss::at(std::int64_t timestep, float clean, float noise,
                                 float predicted_noise, float predicted_variance,
                                 double weight) const {
  const Step& step = steps_.at(static_cast<std::size_t>(timestep));
  const double error = double{predicted_noise} - double{noise};
  const double mean_error = step.error_factor * error;
  const double range = step.max_log_variance - step.min_log_variance;
  const double log_variance = step.min_log_variance + range * (double{predicted_variance} + 1) / 2;
  double bound = 0, slope = 0;  // in nats, and by the log variance
  if (timestep == 0) {
    const Likelihood found = binned_likelihood(clean, mean_error, 0.5 * log_variance);
    bound = -found.logarithm;
    slope = -0.5 * found.d_log_scale;
  } else {  // divergence of the posterior from the predicted distribution
    const double ratio = std::exp(step.min_log_variance - log_variance);
    const double square = mean_error * mean_error * std::exp(-log_variance);
    bound = 0.5 * (log_variance - step.min_log_variance - 1 + ratio + square);
    slope = 0.5 * (1 - ratio - square);
  }
  return {.loss = weight * (error * error) + bound / std::numbers::ln2,
          .d_noise = weight * (2 * error),
          .d_variance = slope * range / 2 / std::numbers::ln2};
}

}  // namespace reelmesh
