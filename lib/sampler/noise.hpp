#pragma once
// How reference pipelines draw the noise of latents.
#include "sampler/generator.hpp"

namespace reelmesh {

/// For latents [frame, channel, row, column].
struct NoiseRule {
  /// Drawn as [channel, frame, row, column] (Open-Sora) instead of in the order of the latents
  /// (diffusers).
  bool channels_first = false;
  /// Number of arrays drawn for the noise of a step; only the first is used. (Open-Sora 1.0 draws
  /// one for each branch of guidance.) More than one only with channels_first.
  std::int64_t arrays_in_step = 1;
  DType initial = DType::float32;  ///< the type to which the initial noise is rounded
  DType in_step = DType::float32;  ///< the type to which noise of a step is rounded
};

/// Draw the initial noise, or the noise of the next step, of latents with the shape `global`. out:
/// this rank's box, numel(extent) values.
void draw_initial_noise(const NoiseRule& rule, TorchGenerator& generator, const Shape& global,
                        const Shape& offset, const Shape& extent, std::span<float> out);
void draw_step_noise(const NoiseRule& rule, TorchGenerator& generator, const Shape& global,
                     const Shape& offset, const Shape& extent, std::span<float> out);

}  // namespace reelmesh
