#include "sampler/training_noise.hpp"

#include <cmath>

namespace reelmesh {

double TrainingNoise::draw_timestep(TorchGenerator& generator) const {
  const auto whole = static_cast<float>(timesteps);
  float drawn = 0;
  if (whole_timesteps) {
    const std::int64_t index = generator.randint(timesteps);
    drawn = static_cast<float>(process == Process::flow_to_noise ? timesteps - index : index);
  } else {
    generator.randn(1, [&](std::int64_t, std::span<const float> values) {
      drawn = whole / (1.0F + std::exp(-values[0]));
    });
  }
  if (shift_ratio == 1) return drawn;
  const float part = drawn / whole;
  return shift_ratio * part / (1.0F + (shift_ratio - 1.0F) * part) * whole;
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
