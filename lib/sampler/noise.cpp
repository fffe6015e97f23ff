#include "sampler/noise.hpp"

#include <cmath>

namespace reelmesh {
namespace {

void round_to(DType dtype, std::span<float> values) {
  if (dtype == DType::float32) return;
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    for (float& value : values) value = static_cast<float>(T(value));
  });
}

void draw(const NoiseRule& rule, std::int64_t arrays, DType dtype, TorchGenerator& generator,
          const Shape& global, const Shape& offset, const Shape& extent, std::span<float> out) {
  expect(static_cast<std::int64_t>(out.size()) == numel(extent), "noise of shape {} for {} values",
         to_string(extent), out.size());
  if (rule.channels_first) {
    fill_noise_by_channel(generator, global, offset, extent, arrays, out.data());
  } else {
    expect(arrays == 1, "{} arrays of noise in the order of the latents", arrays);
    fill_noise(generator, global, offset, extent, out.data());
  }
  round_to(dtype, out);
}

}  // namespace

void draw_initial_noise(const NoiseRule& rule, TorchGenerator& generator, const Shape& global,
                        const Shape& offset, const Shape& extent, std::span<float> out) {
  draw(rule, 1, rule.initial, generator, global, offset, extent, out);
}

void draw_step_noise(const NoiseRule& rule, TorchGenerator& generator, const Shape& global,
                     const Shape& offset, const Shape& extent, std::span<float> out) {
  draw(rule, rule.arrays_in_step, rule.in_step, generator, global, offset, extent, out);
}

NoiseLevel first_noise_level(const NoiseSchedule& schedule, DType dtype) {
  NoiseLevel level{.dtype = dtype};
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    const auto rounded = [](float value) { return static_cast<float>(T(value)); };
    const float alpha_bar =
        rounded(static_cast<float>(schedule.alpha_bar(schedule.timesteps().front())));
    level.signal = rounded(std::sqrt(alpha_bar));
    level.noise = rounded(std::sqrt(rounded(1 - alpha_bar)));
  });
  return level;
}

void add_noise(const NoiseLevel& level, const Tensor& noise, Tensor& latents) {
  expect(noise.numel() == latents.numel(), "{} values of noise for {} latents", noise.numel(),
         latents.numel());
  const std::span<const float> drawn = noise.span<float>();
  const std::span<float> x = latents.span<float>();
  visit_float(level.dtype, [&](auto type) {
    using T = decltype(type);
    const auto rounded = [](float value) { return static_cast<float>(T(value)); };
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = rounded(rounded(level.signal * x[i]) + rounded(level.noise * drawn[i]));
    }
  });
}

}  // namespace reelmesh
