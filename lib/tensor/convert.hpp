#pragma once
#include <cstdint>

#include "tensor/dtype.hpp"

namespace reelmesh {

/// Converts `count` floating-point values, rounding to nearest even, with the same bits on every
/// instruction set. `source` may have any alignment (bytes of a file), `target` is aligned for its
/// type. The ranges do not overlap. Throws Error(internal) for conversions of other types.
void convert(const void* source, DType from, void* target, DType into, std::int64_t count);

/// The same for types known at compile time: float, BFloat16 or Float16.
template <class From, class Into>
void convert(const From* source, Into* target, std::int64_t count) {
  convert(source, dtype_of<From>(), target, dtype_of<Into>(), count);
}

}  // namespace reelmesh
