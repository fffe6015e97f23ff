#pragma once
#include "models/common/memory.hpp"
#include "models/t5/t5.hpp"

namespace reelmesh {

/// Bytes of the weights of T5Layers.
std::int64_t t5_weight_bytes(const T5Config& config, const T5Part& part,
                             const Precision& precision);

/// Peak bytes of T5Layers for a sequence of `tokens` tokens, in addition to the weights.
std::int64_t t5_working_bytes(const T5Config& config, std::int64_t tokens,
                              const Precision& precision);

}  // namespace reelmesh
