#pragma once
// Gradients of the norms, gates and activations of ops/norm.hpp and ops/pointwise.hpp with respect
// to what they are applied to; weights of norms and modulation tables are constant. d: the gradient
// of the loss with respect to a result. Values are computed in float32 from the same inputs as in
// the forward pass, with a fixed order of summation, and rounded once.
#include "ops/norm.hpp"

namespace reelmesh::ops {

/// dx += the gradient of modulated_layer_norm() with respect to x. x, d, dx: [token, batch,
/// channel] of one floating type. Without a table in `modulation`, that of layer_norm().
void layer_norm_backward(const Tensor& x, const Tensor& weight, float eps,
                         const Modulation& modulation, const Tensor& d, Tensor& dx);

/// The gradient of normalise_and_rotate() with respect to its argument x [token, batch, part, head,
/// channel], of part 0; d, of x's shape with one part, is replaced by it. d_norm, of d's shape and
/// type, gets the gradient with respect to what the norm gives before the rotation, unless null.
/// Tables of fewer channels than a head's, which divide these, are used for each of such parts of a
/// head: with all heads as one that is the gradient of norm_together_and_rotate().
void normalise_and_rotate_backward(const Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                                   const Tensor& sines, std::int64_t unrotated, Tensor& d,
                                   Tensor* d_norm = nullptr);

/// gate·d, the gradient of add_gated() with respect to y. d: [token, batch, channel].
Tensor gated(const Tensor& d, const Gate& gate);

/// 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), as Activation::gelu_tanh. Gradient on a tape: of x.
Tensor gelu_tanh(const Tensor& x);
// d *= the derivative of an activation at x, in place; same shape and type.
void gelu_tanh_backward(const Tensor& x, Tensor& d);
void gelu_backward(const Tensor& x, Tensor& d);  ///< of ops::gelu()
/// Records that `out` is a function of each element of x, with one of these gradients.
void record_activation(Tensor& out, const Tensor& x, void (*backward)(const Tensor& x, Tensor& d));

}  // namespace reelmesh::ops
