#pragma once
// A CogVideoX model in the layout of the Hugging Face hub: model_index.json and a folder per part.
#include <array>

#include "models/cogvideox/config.hpp"
#include "models/t5/t5.hpp"
#include "sampler/cogvideox.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// Reads scheduler_config.json. Error(data) for values of another type or out of range; whether
/// they are supported is not checked.
SchedulerConfig read_scheduler(const Config& config);

/// The configuration files of a model, read and checked for consistency; no weights.
struct CogVideoXFolder {
  /// Names of diffusers' pipelines in model_index.json. What a model can do does not depend on the
  /// name: a transformer with channels for an image makes videos from images.
  static constexpr std::array pipeline_classes{"CogVideoXPipeline", "CogVideoXImageToVideoPipeline",
                                               "CogVideoXVideoToVideoPipeline"};

  ModelPaths paths;
  CogVideoXConfig transformer;
  CogVideoXVaeConfig vae;
  T5Config text_encoder;
  SchedulerConfig scheduler;
  /// By the class that model_index.json names.
  const CogVideoXSampler* sampler = &cogvideox_samplers().front();

  /// Throws Error(no_input) for missing folders and files, Error(data) if this is not a CogVideoX
  /// model or its parts do not match.
  static CogVideoXFolder open(const ModelPaths& paths);

  double default_fps() const;  ///< frames per second: 16 for CogVideoX 1.5, 8 for earlier ones
};

}  // namespace reelmesh
