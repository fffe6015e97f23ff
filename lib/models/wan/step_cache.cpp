#include "models/wan/step_cache.hpp"

#include "models/common/embedding_layers.hpp"
#include "models/wan/positions.hpp"

namespace reelmesh {

std::optional<CacheCoefficients> known_cache_coefficients(const WanConfig& c) {
  // Those of image to video differ by the size of the clips, which a configuration does not say.
  if (c.head_channels != 128 || c.takes_image()) return std::nullopt;
  if (c.heads == 12 && c.layers == 30) {  // T2V-1.3B
    return CacheCoefficients(
        {2.39676752e+03, -1.31110545e+03, 2.01331979e+02, -8.29855975e+00, 1.37887774e-01});
  }
  if (c.heads == 40 && c.layers == 40) {  // T2V-14B
    return CacheCoefficients(
        {-5784.54975374, 5449.50911966, -1811.16591783, 256.27178429, -13.02252404});
  }
  return std::nullopt;
}

std::vector<double> time_embedding_distances(const Checkpoint& weights, const WanConfig& config,
                                             std::span<const double> timesteps) {
  const EmbeddingLayers layers(weights, "condition_embedder.time_embedder", config.time_features,
                               config.channels());
  std::vector<std::vector<float>> embeddings;
  for (const double timestep : timesteps) {
    embeddings.push_back(layers(wan_sinusoid(timestep, config.time_features)));
  }
  return relative_changes(embeddings);
}

}  // namespace reelmesh
