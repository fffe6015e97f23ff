#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "sampler/guidance.hpp"
#include "sampler/noise.hpp"
#include "sampler/sampler.hpp"
#include "sampler/step_cache.hpp"

namespace reelmesh {

/// How a clip is sampled: what differs between pipelines in addition to the model.
struct SamplingRecipe {
  std::shared_ptr<const Sampler> sampler;
  Guidance guidance;
  NoiseRule noise;
  /// Video to video: how the latents of the video are mixed with noise before the first step.
  std::optional<NoiseLevel> first_noise;
  /// The first latents are those of an image; steps do not change them.
  bool holds_image = false;
  /// For each call of the sampler whether the model's blocks are computed (step_cache.hpp); null:
  /// in all.
  std::shared_ptr<const std::vector<bool>> computed;

  /// Decides it while the clip is denoised, from Denoiser::Prepared::change_together(); then
  /// `computed` is null.
  std::optional<TeaCacheRule> decides;

  bool computes(std::int64_t call) const {
    return computed == nullptr || (*computed)[static_cast<std::size_t>(call)];
  }
};

}  // namespace reelmesh
