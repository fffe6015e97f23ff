#pragma once
#include <cstdint>

#include "tensor/dtype.hpp"

namespace reelmesh {

/// Converts `count` floating numbers, rounding to nearest even, with the same bits on every
/// instruction set. `source` may lie at any address (bytes of a file), `target` is aligned for its
/// type. The ranges do not overlap.
void convert(const void* source, DType from, void* target, DType into, std::int64_t count);

/// The same for tensors of known types; `from` is a type that visit_float gives.
template <class From, class Into>
void convert(const From* source, Into* target, std::int64_t count) {
  convert(source, dtype_of<From>(), target, dtype_of<Into>(), count);
}

}  // namespace reelmesh
