#pragma once
// How the norms and gates of ops/norm.hpp record themselves on a tape: each of these does nothing
// unless an input needs a gradient. Gradients of what all tokens share, weights of norms and chunks
// of modulation tables, are sums over all tokens (TokenRows).
#include "ops/norm_backward.hpp"
#include "tensor/tape.hpp"

namespace reelmesh::ops {

/// out = modulated_layer_norm(x); without a table, layer_norm(x).
void record_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                       const Modulation& modulation, Tensor& out);

/// sum = x + gate·y, which has overwritten x.
void record_gate(const Tensor& y, const Gate& gate, Tensor& sum);

/// x = normalise_and_rotate(before), in place; before: first_part() of x. With all heads as one,
/// norm_together_and_rotate().
void record_head_norm(const Tensor& before, const HeadNorm& norm, const Tensor& cosines,
                      const Tensor& sines, std::int64_t unrotated, Tensor& x);
/// Part 0 of x [token, batch, part, head, channel], copied: [token, batch, 1, head, channel].
Tensor first_part(const Tensor& x);

}  // namespace reelmesh::ops
