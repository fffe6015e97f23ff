#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// Copy of a box of elements from one array to another. Strides and offsets are in elements.
struct StridedCopy {
  static constexpr int max_axes = 8;
  int axes = 0;
  std::int64_t extent[max_axes] = {};  ///< of the box, none of them 0
  std::int64_t source[max_axes] = {};  ///< stride of each axis in the source
  std::int64_t target[max_axes] = {};
  std::int64_t source_offset = 0, target_offset = 0;
};

/// Writes the box to `target`. Both tensors have one type and device; they do not overlap.
void copy_strided(StridedCopy copy, const Tensor& source, Tensor& target);

}  // namespace reelmesh::gpu
