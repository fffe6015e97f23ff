#pragma once
// Models that can be made from nothing: tiny ones for tests, and the sizes of the released ones.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.hpp"

namespace reelmesh {

struct CogVideoXPreset {
  std::string name;
  DType dtype = DType::float32;  ///< of the weights, unless the user wishes another
  int tokenizer_pieces = 0;      ///< at most; with 100 sentinels they fit vocab_size
  /// model_index.json, and config.json (scheduler_config.json) of the parts.
  nlohmann::json model_index, transformer, vae, text_encoder, scheduler;
};

/// All names, the tiny ones first.
std::vector<std::string> cogvideox_preset_names();

/// The full-size presets have the configurations of THUDM's CogVideoX-2b, CogVideoX-5b and
/// CogVideoX1.5-5B on the hub; the tiny ones have their structure. Error(internal) for another
/// name.
CogVideoXPreset cogvideox_preset(std::string_view name);

}  // namespace reelmesh
