#pragma once
// Random weights for a preset, scaled so that activations stay of order one and decoded pictures
// are neither grey nor saturated.
#include <filesystem>

#include "base/new_file.hpp"
#include "models/checkpoints/parts.hpp"
#include "models/checkpoints/presets.hpp"

namespace reelmesh {

struct PartSize {
  std::int64_t tensors = 0, parameters = 0, bytes = 0;  ///< bytes: without file headers
};
PartSize part_size(const ModelPreset& preset, ModelPart part, DType dtype);

/// Writes the part's folder in `model`: config.json and weights of `dtype` in shards of at most
/// 5 GB. The same seed gives the same bytes. Errors as write_safetensors.
void write_random_part(const ModelPreset& preset, ModelPart part, DType dtype, std::uint64_t seed,
                       const std::filesystem::path& model, Flush flush = Flush::yes);

/// Writes all configs of a preset to the folder `model`, model_index.json last: without it, an
/// incomplete folder is not accepted as a checkpoint. Errors as write_json.
void write_configs(const ModelPreset& preset, const std::filesystem::path& model, Flush flush);

/// Writes a JSON file, indented as by diffusers and transformers; it appears only when complete.
/// Creates the folder; throws Error(cannot_create) if that fails.
void write_json(const std::filesystem::path& file, const nlohmann::json& value,
                Flush flush = Flush::yes);

}  // namespace reelmesh
