#pragma once
#include "ops/folding.hpp"

namespace reelmesh::gpu {

// The ops of these names on a CUDA device.
void add_folded(Tensor& small, const Tensor& large, const ops::Folding& folding);
void add_unfolded(Tensor& large, const Tensor& small, const ops::Folding& folding);

}  // namespace reelmesh::gpu
