#pragma once
// A model of Wan 2.1 or 2.2 in the layout of the Hugging Face hub: model_index.json and a folder
// per part.
#include <array>
#include <optional>

#include "models/clip/config.hpp"
#include "models/common/experts.hpp"
#include "models/common/flow_scheduler.hpp"
#include "models/t5/t5.hpp"
#include "models/wan/config.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The configuration files of a model, read and checked for consistency; no weights.
struct WanFolder {
  /// Names of diffusers' pipelines in model_index.json. TI2V-5B has either: one folder makes videos
  /// from texts and from images.
  static constexpr std::array pipeline_classes{"WanPipeline", "WanImageToVideoPipeline",
                                               "WanVideoToVideoPipeline"};

  ModelPaths paths;
  WanConfig transformer;  ///< of both experts
  /// Of expert_of(): expert 0 is in transformer/, 1 in transformer_2/; none: there is one
  /// transformer.
  std::optional<double> boundary;
  WanVaeConfig vae;
  T5Config text_encoder;
  FlowScheduler scheduler;
  /// Of the encoder of the image that clips begin from, where the transformer takes its rows.
  struct Vision {
    ClipVisionConfig encoder;
    VisionPixels pixels;
  };
  std::optional<Vision> vision;

  /// Rows of the image encoder that the transformer takes for a clip; 0: none.
  std::int64_t vision_rows() const {
    if (!vision) return 0;
    return (transformer.ends_with_image() ? 2 : 1) * vision->encoder.rows();
  }

  /// "expand_timesteps" of model_index.json: frame 0 of the latents may be that of an image, whose
  /// tokens have timestep 0 (TI2V-5B).
  bool expand_timesteps = false;
  /// The transformer that takes steps with this timestep: 0 or 1.
  int expert(double timestep) const { return boundary ? expert_of(timestep, *boundary) : 0; }

  /// Throws Error(no_input) for missing folders and files, Error(data) if this is not such a model
  /// or its parts do not match.
  static WanFolder open(const ModelPaths& paths);
};

}  // namespace reelmesh
