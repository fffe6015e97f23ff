#pragma once
#include "tensor/cuda/strided_copy.hpp"

namespace reelmesh {

/// Copies a box of elements between arrays with these strides; the last axis is contiguous in both.
/// Both are on the host or on the same device, where it is one kernel.
void copy_elements(const gpu::StridedCopy& copy, const Tensor& source, Tensor& target);

}  // namespace reelmesh
