#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// Stands for the bits of a tensor: tensors with different bits have different sums, except with a
/// probability of 2⁻⁶⁴.
struct Digest {
  std::int64_t sum = 0;
  std::int64_t nonzero = 0;  ///< number of elements that are not zero
  bool operator==(const Digest&) const = default;
};

/// Waits for the device. x: of a floating type.
Digest digest(const Tensor& x);

}  // namespace reelmesh::gpu
