#pragma once
#include <memory>
#include <optional>

#include "sampler/guidance.hpp"
#include "sampler/noise.hpp"
#include "sampler/sampler.hpp"

namespace reelmesh {

/// How a clip is sampled: what differs between pipelines in addition to the model.
struct SamplingRecipe {
  std::shared_ptr<const Sampler> sampler;
  Guidance guidance;
  NoiseRule noise;
  /// Video to video: how the latents of the video are mixed with noise before the first step.
  std::optional<NoiseLevel> first_noise;
};

}  // namespace reelmesh
