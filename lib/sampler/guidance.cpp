#include "sampler/guidance.hpp"

#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "sampler/cuda/steps.hpp"
#include "sampler/step_arithmetic.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh {

GuidanceScale constant_guidance(double scale) {
  return [scale](double) { return scale; };
}

GuidanceScale dynamic_guidance(double scale, int steps) {
  return [scale, steps](double timestep) {
    const auto t = static_cast<std::int64_t>(timestep);
    const double progress = static_cast<double>(steps - t) / steps;
    return 1.0 + scale * ((1.0 - std::cos(std::numbers::pi * std::pow(progress, 5.0))) / 2.0);
  };
}

void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, Tensor& cond) {
  expect(cond.shape().size() == 4 && uncond.shape() == cond.shape() && channels <= cond.shape(1),
         "guidance of {} channels of {} and {}", channels, uncond.shape(), cond.shape());
  const auto on_cpu = [&] {
    const std::int64_t pixels = cond.shape(2) * cond.shape(3), frame = cond.shape(1) * pixels;
    for (std::int64_t t = 0; t < cond.shape(0); ++t) {
      float* into = cond.data<float>() + t * frame;
      const float* from = uncond.data<float>() + t * frame;
      for (std::int64_t i = 0; i < channels * pixels; ++i) {
        into[i] = guided(static_cast<float>(scale), from[i], into[i]);
      }
    }
  };
  dispatch(
      cond.device(), [&] { gpu::guide_channels(scale, channels, uncond, cond); }, on_cpu);
}

}  // namespace reelmesh
