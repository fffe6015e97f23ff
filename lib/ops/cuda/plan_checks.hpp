#pragma once
// Whether cuDNN has plans for problems on a GPU that may only be described: for tests without one.
#include "ops/attention_work.hpp"
#include "ops/cuda/dnn.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::gpu {

/// Makes the plan of convolve() for tensors of these shapes. Throws Error(unavailable) if there is
/// none.
void check_convolution_plan(const dnn::Target& target, const ConvolutionShape& shape);

/// Chooses attention as fused_attention() does, and makes its plan for calls of this shape, of at
/// least 16 queries; with_sums: also writes logarithms of sums. Throws Error(unavailable) if there
/// is none.
void check_attention_plan(const dnn::Target& target, const ops::AttentionShape& shape,
                          bool with_sums = false);

}  // namespace reelmesh::gpu
