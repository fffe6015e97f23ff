#pragma once
#include "models/common/memory.hpp"
#include "models/t5/t5.hpp"

namespace reelmesh {

/// What T5Layers hold.
std::int64_t t5_weight_bytes(const T5Config& config, const T5Part& part,
                             const Precision& precision);

/// What T5Layers need for a sequence of so many tokens, beside their weights.
std::int64_t t5_working_bytes(const T5Config& config, std::int64_t tokens,
                              const Precision& precision);

}  // namespace reelmesh
