#pragma once
// Models that can be made with random weights: tiny ones for tests, and the released sizes.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.hpp"

namespace reelmesh {

struct ModelPreset {
  std::string name;
  DType dtype = DType::float32;  ///< of the weights, unless the user chooses another
  int tokenizer_pieces = 0;      ///< maximum; with 100 sentinels at most vocab_size
  /// Contents of model_index.json, the parts' config.json and scheduler_config.json.
  nlohmann::json model_index, transformer, vae, text_encoder, scheduler;
};

/// All names, family by family, tiny presets first in each.
std::vector<std::string> preset_names();

/// The full-size presets have the configurations of THUDM's CogVideoX-2b, CogVideoX-5b,
/// CogVideoX1.5-5B, CogVideoX-5b-I2V and CogVideoX1.5-5B-I2V on the hub and of hpcai-tech's
/// Open-Sora 1.0 and 1.2; the tiny ones have their structure. Error(internal) for another name.
ModelPreset model_preset(std::string_view name);

/// A name and the function that fills in its preset.
struct NamedPreset {
  const char* name;
  void (*make)(ModelPreset&);
};
/// All presets of a family, tiny ones first.
std::vector<NamedPreset> cogvideox_presets();
std::vector<NamedPreset> opensora_presets();

/// text_encoder/config.json of the T5 v1.1 XXL encoder that both families use.
nlohmann::json released_text_encoder();
/// A tiny version with two layers and few channels.
nlohmann::json tiny_text_encoder();

}  // namespace reelmesh
