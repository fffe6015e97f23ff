#pragma once
// An Open-Sora model in the Hugging Face layout: transformer/ with STDiT or STDiT3, vae/, the T5 in
// text_encoder/ and tokenizer/, scheduler/.
#include <variant>

#include "models/autoencoder/config.hpp"
#include "models/opensora/config.hpp"
#include "models/t5/t5.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/rectified_flow.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The small files of a model, read and checked against each other; no weights.
struct OpenSoraFolder {
  static constexpr const char* pipeline_class = "OpenSoraPipeline";

  ModelPaths paths;
  STDiTConfig transformer;
  OpenSoraVaeConfig vae;
  T5Config text_encoder;
  std::variant<IddpmConfig, RectifiedFlowConfig> scheduler;

  /// Error(no_input) for missing folders and files, Error(data) for other models and for parts that
  /// do not fit together.
  static OpenSoraFolder open(const ModelPaths& paths);

  /// Headers of all weights: every tensor that a run needs is there, in its shape. Error(data).
  void check_weights() const;

  const char* scheduler_name() const;  ///< "IDDPM", "RFLOW"
  std::int64_t default_steps() const;
  double default_guidance() const;
  /// What clips are like unless the job says otherwise: v1's configuration tells its size, and a
  /// release for more frames a second stretches time less; v3 takes any size, and its authors'
  /// example is taken.
  VideoSize default_size() const;
  double default_fps() const;
};

}  // namespace reelmesh
