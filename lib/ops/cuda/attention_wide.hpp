#pragma once
#include "ops/attention_work.hpp"

namespace reelmesh::gpu {

/// As attention_work, for heads of any number of channels; slower, and holds all scores of 1024
/// queries.
std::unique_ptr<ops::Attention::Work> wide_attention_work(const ops::Rows& queries, float scale,
                                                          const Tensor& bias,
                                                          const Numerics& numerics);

/// Rows of scores ← softmax(scale·row + bias). scores: float32 [row, key]; bias: as scores, or
/// empty.
void softmax_rows(Tensor& scores, float scale, const Tensor& bias);

}  // namespace reelmesh::gpu
