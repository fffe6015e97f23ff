#pragma once
// Classifier-free guidance as CogVideoXPipeline of diffusers and Open-Sora's samplers compute it.
#include <cstdint>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The scale in effect at timestep t (the value 0..999, not the index of the step): `scale` itself
/// or, if `dynamic`, 1 + scale·(1 - cos(π·((steps - t) / steps)⁵)) / 2. The argument is the
/// reference's and oscillates where t > steps.
double guidance_scale(double scale, bool dynamic, int steps, std::int64_t t);

/// out = uncond + scale·(cond - uncond), each operation rounded to float32. out may be uncond or
/// cond. All are float32, of equally many numbers and on one device, which computes; the bits are
/// the same on all.
void combine_guidance(double scale, const Tensor& uncond, const Tensor& cond, const Tensor& out);

/// combine_guidance on the first `channels` channels, the result in cond; its other channels stay
/// as they are. uncond, cond: float32 [frame, channel, row, column]. (Open-Sora 1.0 guides 3 of its
/// 4 channels of noise, and no variance.)
void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, const Tensor& cond);

}  // namespace reelmesh
