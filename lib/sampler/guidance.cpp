#include "sampler/guidance.hpp"

#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "sampler/step_arithmetic.hpp"

namespace reelmesh {

double guidance_scale(double scale, bool dynamic, int steps, std::int64_t t) {
  if (!dynamic) return scale;
  const double progress = static_cast<double>(steps - t) / steps;
  return 1.0 + scale * ((1.0 - std::cos(std::numbers::pi * std::pow(progress, 5.0))) / 2.0);
}

void combine_guidance(double scale, std::span<const float> uncond, std::span<const float> cond,
                      std::span<float> out) {
  expect(uncond.size() == out.size() && cond.size() == out.size(),
         "guidance of {} and {} values into {}", uncond.size(), cond.size(), out.size());
  const auto s = static_cast<float>(scale);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = guided(s, uncond[i], cond[i]);
}

void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, const Tensor& cond) {
  expect(cond.shape().size() == 4 && uncond.shape() == cond.shape() && channels <= cond.shape(1),
         "guidance of {} channels of {} and {}", channels, to_string(uncond.shape()),
         to_string(cond.shape()));
  const std::int64_t pixels = cond.shape(2) * cond.shape(3), frame = cond.shape(1) * pixels;
  const auto guided = static_cast<std::size_t>(channels * pixels);
  for (std::int64_t t = 0; t < cond.shape(0); ++t) {
    const std::span<float> into(cond.data<float>() + t * frame, guided);
    combine_guidance(scale, {uncond.data<float>() + t * frame, guided}, into, into);
  }
}

}  // namespace reelmesh
