#pragma once
// Attention for training: it keeps what its gradients are computed from.
#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// What attention of whole sequences leaves for its backward pass.
struct AttentionForward {
  Tensor out;  ///< as q
  /// float32 [sequence · batch · head, query]: log2(Σ 2^score) over the keys, where score =
  /// scale·q·k·log2(e).
  Tensor log_sum_exp;
};

/// softmax(scale·q·kᵀ)·v. q, k, v: [sequence · token, batch, head, channel] of one floating type,
/// with all tokens of each sequence in global order and any heads; there may be other numbers of
/// keys than of queries, and the numbers of tokens, batch items and heads may be 0. On the CPU
/// `out` has the bits of attend(). On a GPU it is cuDNN's where that has a kernel for these keys
/// which keeps log_sum_exp, and there are as many queries as keys, otherwise that of Attention's
/// own kernels; heads have at most 128 channels (Error(unavailable)).
AttentionForward attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, float scale,
                                   const Numerics& numerics = {}, std::int64_t sequences = 1);

/// Gradients of a loss; of the types and shapes of q, k and v.
struct AttentionGradients {
  Tensor q, k, v;
};

/// Gradients for the arguments of attention_forward() and its result; d_out: gradient of `out`, of
/// the type and shape of q. Scores are computed again from log_sum_exp and never stored as a whole
/// (Dao 2022, FlashAttention, algorithm 4). The gradient of q is summed over blocks of keys, those
/// of k and v over tiles of queries, each in float32, in global order and rounded once. So the
/// bits of a head depend only on its own values. GPUs multiply 16-bit types on tensor cores, for
/// which weights and gradients of scores are rounded to the type.
AttentionGradients attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const AttentionForward& forward, const Tensor& d_out,
                                      float scale, const Numerics& numerics = {},
                                      std::int64_t sequences = 1);

}  // namespace reelmesh::ops
