#pragma once
// What TeaCache's rule (sampler/step_cache.hpp) needs to know of a Wan model.
// Source: ali-vilab/TeaCache, TeaCache4Wan2.1/teacache_generate.py, without use_ret_steps.
#include "models/wan/config.hpp"
#include "sampler/step_cache.hpp"

namespace reelmesh {

/// The coefficients that TeaCache publishes for the released checkpoint of this geometry: T2V-1.3B
/// and T2V-14B; nullopt for others.
std::optional<CacheCoefficients> known_cache_coefficients(const WanConfig& config);

/// For each step mean |e − e′| / mean |e′|, where e is the embedding of its timestep and e′ that of
/// the step before; [0] is 0. The same on every machine (models/common/embedding_layers.hpp). Reads
/// the weights of the time embedding. Errors as Checkpoint::load.
std::vector<double> time_embedding_distances(const Checkpoint& weights, const WanConfig& config,
                                             std::span<const double> timesteps);

}  // namespace reelmesh
