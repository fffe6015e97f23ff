#pragma once
// What TeaCache's rule (sampler/step_cache.hpp) needs to know of a CogVideoX model.
// Source: ali-vilab/TeaCache at 7c10efc, TeaCache4CogVideoX1.5/teacache_sample_video.py.
#include "models/cogvideox/config.hpp"
#include "sampler/step_cache.hpp"

namespace reelmesh {

/// The coefficients that TeaCache publishes for the released checkpoint of this geometry: 2b, 5b,
/// 5b-I2V, 1.5-5b and 1.5-5b-I2V; nullopt for others.
std::optional<CacheCoefficients> known_cache_coefficients(const CogVideoXConfig& config);

/// For each step mean |e − e′| / mean |e′|, where e is the embedding of its timestep (with that of
/// the offset, 1.5-5b-I2V) and e′ that of the step before; [0] is 0. Timesteps are whole numbers.
/// In float32 with sums in float64 in the order of the channels, on the host, whatever the type and
/// device of the model. Reads the weights of the time embedding. Errors as Checkpoint::load.
std::vector<double> time_embedding_distances(const Checkpoint& weights,
                                             const CogVideoXConfig& config,
                                             std::span<const double> timesteps);

}  // namespace reelmesh
