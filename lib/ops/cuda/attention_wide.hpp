#pragma once
#include "ops/attention_work.hpp"

namespace reelmesh::gpu {

/// As attention_work, for heads with any number of channels. Slower; stores the scores of up to
/// 1024 queries with all keys of a sequence.
std::unique_ptr<ops::Attention::Work> wide_attention_work(const ops::Rows& queries, float scale,
                                                          const Tensor& bias,
                                                          const Numerics& numerics);

/// Replaces each row of scores with softmax(scale·row + bias). scores: float32 [row, key]; bias: of
/// the same type and shape, or empty.
void softmax_rows(Tensor& scores, float scale, const Tensor& bias);

}  // namespace reelmesh::gpu
