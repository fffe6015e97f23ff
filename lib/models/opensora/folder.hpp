#pragma once
// An Open-Sora model in the layout of the Hugging Face hub: transformer/ (STDiT or STDiT3), vae/,
// text_encoder/ and tokenizer/ (T5), scheduler/.
#include <variant>

#include "models/autoencoder/config.hpp"
#include "models/opensora/config.hpp"
#include "models/t5/t5.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/rectified_flow.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The configuration files of a model, read and checked for consistency; no weights.
struct OpenSoraFolder {
  static constexpr const char* pipeline_class = "OpenSoraPipeline";

  ModelPaths paths;
  STDiTConfig transformer;
  OpenSoraVaeConfig vae;
  T5Config text_encoder;
  std::variant<IddpmConfig, RectifiedFlowConfig> scheduler;

  /// Throws Error(no_input) for missing folders and files, Error(data) if this is not an Open-Sora
  /// model or its parts do not match.
  static OpenSoraFolder open(const ModelPaths& paths);

  std::string_view scheduler_name() const;  ///< of its class: "IDDPM", "RFLOW"
  std::int64_t default_steps() const;
  double default_guidance() const;
  /// Size and frames per second of clips unless the job sets them. v1: the size in config.json, at
  /// 8 / time_scale frames per second. v3 accepts any size; the default is its authors' example, 51
  /// frames of 240 × 426 pixels at 24.
  VideoSize default_size() const;
  double default_fps() const;
};

}  // namespace reelmesh
