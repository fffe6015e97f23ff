#pragma once
#include "models/common/trained_weights.hpp"
#include "models/opensora/config.hpp"

namespace reelmesh {

/// The parameters that Open-Sora trains: all but rotary frequencies, position tables and the
/// embedding of the null caption.
TrainedWeights trained_weights(const STDiTConfig& config);

}  // namespace reelmesh
