#pragma once
// Whether cuDNN has plans for problems on a GPU that may only be described: for tests without one.
#include "ops/attention_work.hpp"
#include "ops/cuda/dnn.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::gpu {

/// Makes plans for convolve() for tensors of these shapes, `max` at most. → their engines in the
/// order of cuDNN's proposals, the reference first. Throws Error(unavailable) if there is none.
std::vector<std::int64_t> convolution_engines(const dnn::Target& target,
                                              const ConvolutionShape& shape, std::size_t max);

/// Chooses attention as fused_attention() does, and makes its plan for calls of this shape, of at
/// least 16 queries; with_sums: also writes logarithms of sums. Throws Error(unavailable) if there
/// is none.
void check_attention_plan(const dnn::Target& target, const ops::AttentionShape& shape,
                          bool with_sums = false);

}  // namespace reelmesh::gpu
