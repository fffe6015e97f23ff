#pragma once
// A Wan 2.1 model for text to video in the layout of the Hugging Face hub: model_index.json and a
// folder per part.
#include "models/common/flow_scheduler.hpp"
#include "models/t5/t5.hpp"
#include "models/wan/config.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The configuration files of a model, read and checked for consistency; no weights.
struct WanFolder {
  /// Name of diffusers' pipeline in model_index.json.
  static constexpr const char* pipeline_class = "WanPipeline";

  ModelPaths paths;
  WanConfig transformer;
  WanVaeConfig vae;
  T5Config text_encoder;
  FlowScheduler scheduler;

  /// Throws Error(no_input) for missing folders and files, Error(data) if this is not a model of
  /// Wan 2.1 for text to video or its parts do not match.
  static WanFolder open(const ModelPaths& paths);
};

}  // namespace reelmesh
