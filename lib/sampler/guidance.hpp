#pragma once
// Classifier-free guidance as CogVideoXPipeline of diffusers computes it.
#include <cstdint>
#include <span>

namespace reelmesh {

/// The scale in effect at timestep t (the value 0..999, not the index of the step): `scale` itself
/// or, if `dynamic`, 1 + scale·(1 - cos(π·((steps - t) / steps)⁵)) / 2. The argument is the
/// reference's and oscillates where t > steps.
double guidance_scale(double scale, bool dynamic, int steps, std::int64_t t);

/// out = uncond + scale·(cond - uncond), each operation rounded to float32. out may be uncond or
/// cond. All spans are equally long.
void combine_guidance(double scale, std::span<const float> uncond, std::span<const float> cond,
                      std::span<float> out);

}  // namespace reelmesh
