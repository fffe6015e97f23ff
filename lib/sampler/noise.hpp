#pragma once
// How reference pipelines draw the noise of latents.
#include "sampler/generator.hpp"

namespace reelmesh {

/// For latents [frame, channel, row, column].
struct NoiseRule {
  /// Drawn as [channel, frame, row, column] (Open-Sora) instead of in the order of the latents
  /// (diffusers).
  bool channels_first = false;
  /// Arrays that are drawn for the noise of a step, one after the other; the first one counts.
  /// (Open-Sora 1.0 draws for both branches of guidance. Only with channels_first.)
  std::int64_t arrays_in_step = 1;
  DType initial = DType::float32;  ///< the type to which the initial noise is rounded
  DType in_step = DType::float32;  ///< and that of the steps
};

/// This rank's box of the initial noise, or of the next noise of a step, of latents with the shape
/// `global`; `out` has numel(extent) numbers, float32.
void draw_initial_noise(const NoiseRule& rule, TorchGenerator& generator, const Shape& global,
                        const Shape& offset, const Shape& extent, std::span<float> out);
void draw_step_noise(const NoiseRule& rule, TorchGenerator& generator, const Shape& global,
                     const Shape& offset, const Shape& extent, std::span<float> out);

}  // namespace reelmesh
