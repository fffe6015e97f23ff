#pragma once
// A model of Wan 2.1 for text to video, or Wan 2.2's TI2V-5B, in the layout of the Hugging Face
// hub: model_index.json and a folder per part.
#include <array>

#include "models/common/flow_scheduler.hpp"
#include "models/t5/t5.hpp"
#include "models/wan/config.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The configuration files of a model, read and checked for consistency; no weights.
struct WanFolder {
  /// Names of diffusers' pipelines in model_index.json. TI2V-5B has either: one folder makes videos
  /// from texts and from images.
  static constexpr std::array pipeline_classes{"WanPipeline", "WanImageToVideoPipeline"};

  ModelPaths paths;
  WanConfig transformer;
  WanVaeConfig vae;
  T5Config text_encoder;
  FlowScheduler scheduler;
  /// "expand_timesteps" of model_index.json: frame 0 of the latents may be that of an image, whose
  /// tokens have timestep 0 (TI2V-5B).
  bool takes_image = false;

  /// Throws Error(no_input) for missing folders and files, Error(data) if this is not such a model
  /// or its parts do not match.
  static WanFolder open(const ModelPaths& paths);
};

}  // namespace reelmesh
