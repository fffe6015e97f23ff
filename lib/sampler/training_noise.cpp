#include "sampler/training_noise.hpp"

#include <algorithm>
#include <cmath>

namespace reelmesh {

double TrainingNoise::draw_timestep(TorchGenerator& generator) const {
  const auto whole = static_cast<float>(timesteps);
  float drawn = 0;
  const bool is_uniform = draw == TimestepDraw::uniform;
  if (!is_uniform) {
    generator.randn(1, [&](std::int64_t, std::span<const float> values) {
      drawn = whole / (1.0F + std::exp(-(logit_mean + logit_std * values[0])));
    });
  } else if (!whole_timesteps) {
    drawn = whole * generator.rand();
  }
  if (whole_timesteps) {
    const std::int64_t index = is_uniform
                                   ? generator.randint(timesteps)
                                   : std::min(static_cast<std::int64_t>(drawn), timesteps - 1);
    drawn = static_cast<float>(process == Process::flow_to_noise ? timesteps - index : index);
  }
  if (shift_ratio == 1) return drawn;
  const float part = drawn / whole;
  return shift_ratio * part / (1.0F + (shift_ratio - 1.0F) * part) * whole;
}

double TrainingNoise::weight(double timestep) const {
  if (!min_snr) return 1;
  const double alpha = alpha_bar.at(static_cast<std::size_t>(timestep));
  const double snr = alpha / (1 - alpha);
  if (process == Process::velocity) return std::min(snr, *min_snr) / (snr + 1);
  return snr > *min_snr ? *min_snr / snr : 1;
}

TrainingNoise::Mix TrainingNoise::mix(double timestep) const {
  if (process == Process::flow || process == Process::flow_to_noise) {
    const float signal = 1.0F - static_cast<float>(timestep) / static_cast<float>(timesteps);
    return {signal, 1.0F - signal};
  }
  const auto alpha = static_cast<float>(alpha_bar.at(static_cast<std::size_t>(timestep)));
  return {std::sqrt(alpha), std::sqrt(1.0F - alpha)};
}

}  // namespace reelmesh
