#include "sampler/steps.hpp"

#include <cmath>

#include "base/error.hpp"
#include "sampler/cuda/steps.hpp"
#include "sampler/step_arithmetic.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh {
namespace {

/// Half the logarithm of the signal-to-noise ratio; -∞ for ᾱ = 0 and ∞ for ᾱ = 1.
double lambda(double alpha_bar) { return std::log(std::sqrt(alpha_bar / (1.0 - alpha_bar))); }

}  // namespace

DdimCoefficients ddim_coefficients(const NoiseSchedule& schedule, int i) {
  const double now = schedule.alpha_bar(schedule.timesteps().at(static_cast<std::size_t>(i)));
  const double next = schedule.target_alpha_bar(i);
  const double sample = std::sqrt((1.0 - next) / (1.0 - now));
  const double clean = std::sqrt(next) - std::sqrt(now) * sample;
  return {.sample_to_clean = static_cast<float>(std::sqrt(now)),
          .v_to_clean = static_cast<float>(std::sqrt(1.0 - now)),
          .sample = static_cast<float>(sample),
          .clean = static_cast<float>(clean)};
}

DpmCoefficients dpm_coefficients(const NoiseSchedule& schedule, int i) {
  const auto index = static_cast<std::size_t>(i);
  const double now = schedule.alpha_bar(schedule.timesteps().at(index));
  const double next = schedule.target_alpha_bar(i);
  const double h = lambda(next) - lambda(now);
  DpmCoefficients c{};
  c.sample_to_clean = static_cast<float>(std::sqrt(now));
  c.v_to_clean = static_cast<float>(std::sqrt(1.0 - now));
  c.sample = static_cast<float>(std::sqrt((1.0 - next) / (1.0 - now)) * std::exp(-h));
  c.clean = static_cast<float>(std::expm1(-2.0 * h) * std::sqrt(next));
  c.noise = static_cast<float>(std::sqrt(1.0 - next) * std::sqrt(1.0 - std::exp(-2.0 * h)));
  c.second_order = i > 0 && schedule.target(i) >= 0;
  c.clean_now = 1;
  if (c.second_order) {
    const double before = schedule.alpha_bar(schedule.timesteps().at(index - 1));
    const double ratio = (lambda(now) - lambda(before)) / h;
    c.clean_now = static_cast<float>(1.0 + 1.0 / (2.0 * ratio));
    c.clean_before = static_cast<float>(1.0 / (2.0 * ratio));
  }
  return c;
}

void ddim_step(const DdimCoefficients& c, const Tensor& v, Tensor& x) {
  expect(v.numel() == x.numel(), "DDIM step of {} values with {} predictions", x.numel(),
         v.numel());
  const auto on_cpu = [&] {
    const std::span<const float> from = v.span<float>();
    const std::span<float> to = x.span<float>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = ddim_next(c, from[i], to[i]);
  };
  dispatch(
      x.device(), [&] { gpu::ddim_step(c, v, x); }, on_cpu);
}

void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, Tensor& clean,
              Tensor& x) {
  expect(v.numel() == x.numel() && noise.numel() == x.numel() && clean.numel() == x.numel(),
         "DPM step of {} values with {} predictions, {} of noise and {} clean ones", x.numel(),
         v.numel(), noise.numel(), clean.numel());
  const auto on_cpu = [&] {
    const std::span<const float> from = v.span<float>(), drawn = noise.span<float>();
    const std::span<float> kept = clean.span<float>(), to = x.span<float>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = dpm_next(c, from[i], drawn[i], kept[i], to[i]);
    }
  };
  dispatch(
      x.device(), [&] { gpu::dpm_step(c, v, noise, clean, x); }, on_cpu);
}

}  // namespace reelmesh
