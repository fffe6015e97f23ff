#include "models/cogvideox/step_cache.hpp"

#include "models/cogvideox/positions.hpp"
#include "models/common/embedding_layers.hpp"

namespace reelmesh {
std::optional<CacheCoefficients> known_cache_coefficients(const CogVideoXConfig& c) {
  const auto is = [&](std::int64_t heads, std::int64_t layers, bool rotary,
                      std::int64_t patch_frames) {
    return c.heads == heads && c.layers == layers && c.head_channels == 64 && c.rotary == rotary &&
           c.patch.frames == patch_frames;
  };
  if (is(30, 30, false, 1) && !c.takes_image()) {  // 2b
    return CacheCoefficients(
        {-3.10658903e+01, 2.54732368e+01, -5.92380459e+00, 1.75769064e+00, -3.61568434e-03});
  }
  if (is(48, 42, true, 1)) {  // 5b, 5b-I2V
    return CacheCoefficients(
        {-1.53880483e+03, 8.43202495e+02, -1.34363087e+02, 7.97131516e+00, -5.23162339e-02});
  }
  if (!is(48, 42, true, 2)) return std::nullopt;
  if (c.takes_image()) {  // 1.5-5b-I2V
    return CacheCoefficients(
        {1.22842302e+02, -1.04088754e+02, 2.62981677e+01, -3.06009921e-01, 3.71213220e-02});
  }
  return CacheCoefficients(
      {2.50210439e+02, -1.65061612e+02, 3.57804877e+01, -7.81551492e-01, 3.58559703e-02});
}

std::vector<double> time_embedding_distances(const Checkpoint& weights,
                                             const CogVideoXConfig& config,
                                             std::span<const double> timesteps) {
  const auto layers = [&](const std::string& name, std::int64_t in) {
    return EmbeddingLayers(weights, name, in, config.time_channels);
  };
  const EmbeddingLayers of_time = layers("time_embedding", config.channels());
  std::vector<float> offset(static_cast<std::size_t>(config.time_channels), 0.0F);
  if (config.ofs_channels > 0) {
    offset = layers("ofs_embedding", config.ofs_channels)(
        timestep_embedding(CogVideoXConfig::ofs_value, config.ofs_channels, config));
  }
  std::vector<std::vector<float>> embeddings;
  for (const double timestep : timesteps) {
    std::vector<float>& now = embeddings.emplace_back(of_time(
        timestep_embedding(static_cast<std::int64_t>(timestep), config.channels(), config)));
    for (std::size_t i = 0; i < now.size(); ++i) now[i] += offset[i];
  }
  return relative_changes(embeddings);
}

}  // namespace reelmesh
