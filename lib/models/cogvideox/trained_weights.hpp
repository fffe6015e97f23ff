#pragma once
#include "models/cogvideox/config.hpp"
#include "models/common/trained_weights.hpp"

namespace reelmesh {

/// All parameters of a transformer without learned positions.
TrainedWeights trained_weights(const CogVideoXConfig& config);

}  // namespace reelmesh
