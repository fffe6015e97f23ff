#pragma once
#include "models/cogvideox/config.hpp"
#include "models/common/trained_weights.hpp"

namespace reelmesh {

/// All parameters but learned positions.
TrainedWeights trained_weights(const CogVideoXConfig& config);

}  // namespace reelmesh
