#pragma once
// A model of Wan 2.1, or of Wan 2.2 with two experts, for text to video in the layout of the Hugging
// Face hub: model_index.json and a folder per part.
#include <optional>

#include "models/common/experts.hpp"
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
  WanConfig transformer;  ///< of both experts
  /// Of expert_of(): expert 0 is in transformer/, 1 in transformer_2/; none: there is one
  /// transformer.
  std::optional<double> boundary;
  WanVaeConfig vae;
  T5Config text_encoder;
  FlowScheduler scheduler;

  /// The transformer that takes steps with this timestep: 0 or 1.
  int expert(double timestep) const { return boundary ? expert_of(timestep, *boundary) : 0; }

  /// Throws Error(no_input) for missing folders and files, Error(data) if this is not such a model
  /// or its parts do not match.
  static WanFolder open(const ModelPaths& paths);
};

}  // namespace reelmesh
