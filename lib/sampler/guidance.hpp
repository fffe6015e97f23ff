#pragma once
// Classifier-free guidance as CogVideoXPipeline of diffusers and Open-Sora's samplers compute it.
#include <cstdint>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The scale in effect at timestep t (the value 0..999, not the index of the step): `scale` itself
/// or, if `dynamic`, 1 + scale·(1 - cos(π·((steps - t) / steps)⁵)) / 2. The argument is the
/// reference's and oscillates where t > steps.
double guidance_scale(double scale, bool dynamic, int steps, std::int64_t t);

/// cond ← uncond + scale·(cond - uncond) in the first `channels` channels, each operation rounded
/// to float32; the other channels stay as they are. uncond, cond: float32 [frame, channel, row,
/// column], on one device, which computes; the bits are the same on all. (Open-Sora 1.0 guides 3 of
/// its 4 channels of noise, and no variance.)
void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, Tensor& cond);

/// The guidance of one clip.
struct Guidance {
  double scale = 1;
  bool dynamic = false;       ///< as in guidance_scale
  int steps = 1;              ///< as asked for
  std::int64_t channels = 1;  ///< the first ones of a prediction, on which it acts

  /// As guide_channels, with the scale at this timestep.
  void apply(double timestep, const Tensor& uncond, Tensor& cond) const {
    const double now = guidance_scale(scale, dynamic, steps, static_cast<std::int64_t>(timestep));
    guide_channels(now, channels, uncond, cond);
  }
};

}  // namespace reelmesh
