#pragma once
// Classifier-free guidance as CogVideoXPipeline of diffusers and Open-Sora's samplers compute it.
#include <cstdint>
#include <functional>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The scale of a step by the timestep that the model is called with: 0..999, not the index of the
/// step.
using GuidanceScale = std::function<double(double timestep)>;
/// The same scale in all steps.
GuidanceScale constant_guidance(double scale);
/// 1 + scale·(1 - cos(π·((steps - t) / steps)⁵)) / 2 with the timestep's integer part t. The
/// formula is the reference's; it oscillates where t > steps.
GuidanceScale dynamic_guidance(double scale, int steps);

/// cond ← uncond + scale·(cond - uncond) in the first `channels` channels, each operation rounded
/// to float32; other channels of cond do not change. uncond, cond: float32 [frame, channel, row,
/// column], on the same device, which computes; all devices give the same bits. (Open-Sora 1.0
/// guides 3 of its 4 noise channels, and not the variance.)
void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, Tensor& cond);

/// The guidance of one clip.
struct Guidance {
  GuidanceScale scale = constant_guidance(1);
  std::int64_t channels = 1;  ///< acts on this many first channels of a prediction

  /// As guide_channels, with the scale at this timestep.
  void apply(double timestep, const Tensor& uncond, Tensor& cond) const {
    guide_channels(scale(timestep), channels, uncond, cond);
  }
};

}  // namespace reelmesh
