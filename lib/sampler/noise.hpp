#pragma once
// How reference pipelines draw the noise of latents.
#include "sampler/generator.hpp"
#include "sampler/noise_schedule.hpp"

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

/// How a clip of a video is mixed with noise before its first step, as add_noise of diffusers'
/// schedulers: each operation is rounded to `dtype`.
struct NoiseLevel {
  float signal = 0, noise = 1;  ///< factors; values of `dtype`
  DType dtype = DType::float32;
};
/// That of the schedule's first timestep.
NoiseLevel first_noise_level(const NoiseSchedule& schedule, DType dtype);
/// latents: values of level.dtype, replaced by signal·latents + noise·noise. Both are float32, with
/// equally many elements, on the host.
void add_noise(const NoiseLevel& level, const Tensor& noise, Tensor& latents);

}  // namespace reelmesh
