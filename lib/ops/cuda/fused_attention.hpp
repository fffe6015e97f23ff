#pragma once
#include "ops/attention_work.hpp"

namespace reelmesh::gpu {

/// Whether fused_attention takes these: asked of the library, the kind of device and what every
/// layout has in common, so that all ranks hear the same.
bool has_fused_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels);

/// out ← softmax(scale·q·kᵀ)·v by cuDNN's fused kernel, where there is one. Keys and values: all,
/// in one tensor or with the same strides; out: [sequence · query, batch, head, channel]; at least
/// one query and head. One kernel for a number of keys and channels, whatever the number of
/// queries, heads and items; it goes over the keys in their order.
void fused_attention(const ops::Rows& queries, const ops::Rows& keys, const ops::Rows& values,
                     float scale, Tensor& out);

}  // namespace reelmesh::gpu
