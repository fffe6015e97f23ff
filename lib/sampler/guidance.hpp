#pragma once
// Classifier-free guidance as CogVideoXPipeline of diffusers and Open-Sora's samplers compute it.
#include <cstdint>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The scale in effect at timestep t (the value 0..999, not the index of the step): `scale` itself
/// or, if `dynamic`, 1 + scale·(1 - cos(π·((steps - t) / steps)⁵)) / 2. The formula is the
/// reference's; it oscillates where t > steps.
double guidance_scale(double scale, bool dynamic, int steps, std::int64_t t);

/// cond ← uncond + scale·(cond - uncond) in the first `channels` channels, each operation rounded
/// to float32; other channels of cond do not change. uncond, cond: float32 [frame, channel, row,
/// column], on the same device, which computes; all devices give the same bits. (Open-Sora 1.0
/// guides 3 of its 4 noise channels, and not the variance.)
void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, Tensor& cond);

/// The guidance of one clip.
struct Guidance {
  double scale = 1;
  bool dynamic = false;       ///< as in guidance_scale
  int steps = 1;              ///< as requested
  std::int64_t channels = 1;  ///< acts on this many first channels of a prediction

  /// As guide_channels, with the scale at this timestep.
  void apply(double timestep, const Tensor& uncond, Tensor& cond) const {
    const double now = guidance_scale(scale, dynamic, steps, static_cast<std::int64_t>(timestep));
    guide_channels(now, channels, uncond, cond);
  }
};

}  // namespace reelmesh
