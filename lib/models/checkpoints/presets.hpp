#pragma once
// Models that can be made with random weights: tiny ones for tests, and the released sizes.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

struct ModelPreset {
  std::string name;
  DType dtype = DType::float32;  ///< of the weights, unless the user chooses another
  int tokenizer_pieces = 0;      ///< maximum; with 100 sentinels at most vocab_size
  /// Contents of model_index.json, the parts' config.json and scheduler_config.json.
  nlohmann::json model_index;
  std::map<ModelPart, nlohmann::json> parts;
  nlohmann::json scheduler;
  nlohmann::json image_processor;  ///< preprocessor_config.json; null: none
};

/// All names, family by family, tiny presets first in each.
std::vector<std::string> preset_names();

/// The full-size presets have the configurations of THUDM's CogVideoX-2b, CogVideoX-5b,
/// CogVideoX1.5-5B, CogVideoX-5b-I2V and CogVideoX1.5-5B-I2V on the hub, of hpcai-tech's Open-Sora
/// 1.0 and 1.2 and of Wan 2.1 and 2.2; the tiny ones have their structure. Error(internal) for
/// another name.
///
/// They are the files presets/*.json, which are compiled in. An entry has the keys of ModelPreset;
/// it begins with those of the entries that "like" names, one after the other, and changes values
/// in them. The second transformer of a model that has one is configured as the first. Entries of
/// "bases" are parts of presets and have no name for users.
ModelPreset model_preset(std::string_view name);

}  // namespace reelmesh
