#pragma once
// A CogVideoX model as the Hugging Face hub holds it: model_index.json and a folder for each part.
#include "models/cogvideox/config.hpp"
#include "models/t5/t5.hpp"
#include "sampler/cogvideox.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The small files of a model, read and checked against each other; no weights.
struct CogVideoXFolder {
  static constexpr const char* pipeline_class = "CogVideoXPipeline";

  ModelPaths paths;
  CogVideoXConfig transformer;
  CogVideoXVaeConfig vae;
  T5Config text_encoder;
  SchedulerConfig scheduler;
  SamplerKind sampler = SamplerKind::ddim;

  /// Error(no_input) for missing folders and files, Error(data) for other models than CogVideoX's
  /// text-to-video and for parts that do not fit together.
  static CogVideoXFolder open(const ModelPaths& paths);

  /// Headers of all weights: every tensor that a run needs is there, in its shape. Error(data).
  void check_weights() const;

  double default_fps() const;  ///< 16 frames a second for releases 1.5, 8 before
};

}  // namespace reelmesh
