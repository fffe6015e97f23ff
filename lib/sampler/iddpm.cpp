#include "sampler/iddpm.hpp"

#include <cmath>

#include "base/error.hpp"
#include "sampler/cuda/steps.hpp"
#include "sampler/noise_schedule.hpp"
#include "sampler/step_arithmetic.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh {
namespace {

/// Evenly spaced indices, ascending: a running sum, rounded half to even.
std::vector<std::int64_t> spaced(std::int64_t count, int steps) {
  const double stride = static_cast<double>(count - 1) / (steps - 1);
  std::vector<std::int64_t> indices;
  double at = 0;
  for (int i = 0; i < steps; ++i, at += stride) {
    indices.push_back(static_cast<std::int64_t>(std::nearbyint(at)));
  }
  return indices;
}

}  // namespace

std::vector<double> alpha_bar_table(const IddpmConfig& config) {
  std::vector<double> table;
  const auto last = static_cast<double>(config.num_train_timesteps - 1);
  const double stride = (config.beta_end - config.beta_start) / last;
  double product = 1.0;
  for (std::int64_t t = 0; t < config.num_train_timesteps; ++t) {
    const double beta = t + 1 == config.num_train_timesteps
                            ? config.beta_end
                            : static_cast<double>(t) * stride + config.beta_start;
    product *= 1.0 - beta;
    table.push_back(product);
  }
  return table;
}

void check(const IddpmConfig& config) {
  const auto within = [](const char* key, double value, bool good, const char* expected) {
    require(good, Status::data, "{} is {}, expected {}", key, value, expected);
  };
  const std::int64_t count = config.num_train_timesteps;
  within("num_train_timesteps", static_cast<double>(count),
         count >= 2 && count <= max_train_timesteps, "2 to 1000000");
  within("num_sampling_steps", static_cast<double>(config.num_sampling_steps),
         config.num_sampling_steps >= 2 && config.num_sampling_steps <= count,
         "2 to num_train_timesteps");
  within("cfg_channel", static_cast<double>(config.guided_channels), config.guided_channels >= 1,
         "1 or more");
  const double start = config.beta_start, end = config.beta_end;
  within("beta_start", start, start > 0 && start < 1, "a number between 0 and 1");
  within("beta_end", end, end >= start && end < 1, "at least beta_start and below 1");
}

Iddpm::Iddpm(const IddpmConfig& config, int steps) {
  check(config);
  require(steps >= 2 && steps <= config.num_train_timesteps, Status::usage,
          "sample.steps is {}, expected 2 to {}", steps, config.num_train_timesteps);
  const std::vector<double> training = alpha_bar_table(config);
  const std::vector<std::int64_t> indices = spaced(config.num_train_timesteps, steps);

  // The chosen timesteps form a shorter diffusion process: its betas follow from ratios of ᾱ, and
  // all other tables from these betas.
  const auto count = indices.size();
  std::vector<double> beta(count), alpha_bar(count), log_variance(count);
  double before = 1.0, product = 1.0;
  for (std::size_t k = 0; k < count; ++k) {
    const double now = training[static_cast<std::size_t>(indices[k])];
    beta[k] = 1.0 - now / before;
    before = now;
    const double last = product;
    product *= 1.0 - beta[k];
    alpha_bar[k] = product;
    log_variance[k] = std::log(beta[k] * (1.0 - last) / (1.0 - product));
  }
  log_variance[0] = log_variance[1];  // the posterior variance of the last step is 0
  for (std::size_t k = count; k-- > 0;) {
    const double last = k == 0 ? 1.0 : alpha_bar[k - 1], now = alpha_bar[k];
    timesteps_.push_back(indices[k]);
    coefficients_.push_back(
        {.sample_to_clean = static_cast<float>(std::sqrt(1.0 / now)),
         .noise_to_clean = static_cast<float>(std::sqrt(1.0 / now - 1.0)),
         .clean = static_cast<float>(beta[k] * std::sqrt(last) / (1.0 - now)),
         .sample = static_cast<float>((1.0 - last) * std::sqrt(1.0 - beta[k]) / (1.0 - now)),
         .min_log_variance = static_cast<float>(log_variance[k]),
         .max_log_variance = static_cast<float>(std::log(beta[k]))});
  }
}

CleanFactors Iddpm::clean_factors(int i) const {
  const IddpmCoefficients& c = coefficients_.at(static_cast<std::size_t>(i));
  return {c.sample_to_clean, -c.noise_to_clean};
}

void Iddpm::step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& /*history*/,
                 const DrawNoise& draw) const {
  const Shape& shape = x.shape();
  expect(
      shape.size() == 4 && prediction.shape() == Shape{shape[0], 2 * shape[1], shape[2], shape[3]},
      "IDDPM step of {} with a prediction {}", shape, prediction.shape());
  const IddpmCoefficients& c = coefficients_.at(static_cast<std::size_t>(i));
  Tensor drawn = Tensor::empty(shape, DType::float32, x.device().host());
  if (!x.device().only_shapes) draw(drawn.span<float>());
  const bool last = i + 1 == calls();
  const auto on_cpu = [&] {
    const std::int64_t frame = shape[1] * shape[2] * shape[3];
    for (std::int64_t t = 0; t < shape[0]; ++t) {
      float* latent = x.data<float>() + t * frame;
      const float* epsilon = prediction.data<float>() + 2 * t * frame;
      const float* between = epsilon + frame;
      const float* noise = drawn.data<float>() + t * frame;
      for (std::int64_t j = 0; j < frame; ++j) {
        const float mean = iddpm_mean(c, epsilon[j], latent[j]);
        latent[j] =
            last ? mean : mean + std::exp(0.5F * iddpm_log_variance(c, between[j])) * noise[j];
      }
    }
  };
  dispatch(
      x.device(), [&] { gpu::iddpm_step(c, last, prediction, drawn.on(x.device()), x); }, on_cpu);
}

}  // namespace reelmesh
