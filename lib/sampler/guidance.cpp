#include "sampler/guidance.hpp"

#include <cmath>
#include <numbers>

#include "base/error.hpp"

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
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = uncond[i] + s * (cond[i] - uncond[i]);
}

}  // namespace reelmesh
