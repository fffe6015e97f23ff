#pragma once
// The weights of a preset, drawn at random so that what comes out looks like something: activations
// stay of the order of one, and pictures are neither grey nor saturated.
#include <filesystem>

#include "models/checkpoints/parts.hpp"
#include "models/checkpoints/presets.hpp"

namespace reelmesh {

const nlohmann::json& config_of(const ModelPreset& preset, ModelPart part);

struct PartSize {
  std::int64_t tensors = 0, parameters = 0, bytes = 0;  ///< bytes of weights, headers apart
};
PartSize size_of(const ModelPreset& preset, ModelPart part, DType dtype);

/// Writes the part's folder below `model`: config.json, and weights of this type in shards of at
/// most 5 GB. The same seed gives the same bytes. Errors as write_safetensors.
void write_random_part(const ModelPreset& preset, ModelPart part, DType dtype, std::uint64_t seed,
                       const std::filesystem::path& model);

/// Writes a JSON file as the reference's libraries do; it appears when complete.
void write_json(const std::filesystem::path& file, const nlohmann::json& value);

}  // namespace reelmesh
