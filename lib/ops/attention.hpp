#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// softmax(scale·q·kᵀ + bias)·v over all tokens, for every batch item and head, without ever
/// holding the whole score matrix (online softmax over blocks of keys; Milakov & Gimelshein 2018,
/// Dao 2022). Blocks of keys start at fixed tokens and a row meets the same kernel wherever it
/// stands, so a row's bits depend on its query and on all keys, in token order, only. qkv: [token,
/// batch, 3, head, channel]; bias: float32 [head, token, token] (query, key) or empty. → [token,
/// batch, head, channel] of the same type. Heads may be none.
Tensor attention(const Tensor& qkv, float scale, const Tensor& bias = {});

}  // namespace reelmesh::ops
