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
  /// Clips of a video begin from it with noise of this level.
  std::optional<NoiseLevel> start;
};

}  // namespace reelmesh
