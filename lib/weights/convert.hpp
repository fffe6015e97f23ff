#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace reelmesh {

/// Converts `count` floating numbers, rounding to nearest even. `source` is bytes of a file and may
/// lie at any address; `target` is aligned for its type. The ranges do not overlap.
void convert(const std::byte* source, DType from, void* target, DType into, std::int64_t count);

}  // namespace reelmesh
