#pragma once
#include "models/common/denoiser.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {

// What all blocks of a transformer add to the hidden states of the video, as `blocks` says. x: the
// hidden states; residual: of the same shape and type, written or read, unless blocks are only
// computed.

/// To be called before the blocks.
inline void before_blocks(Blocks blocks, const Tensor& x, Tensor& residual) {
  if (blocks == Blocks::compute_and_keep) residual.copy_from(ops::scaled(x, -1));
}

/// To be called after the blocks, or instead of them. `after − before` is rounded once.
inline void after_blocks(Blocks blocks, Tensor& x, Tensor& residual) {
  if (blocks == Blocks::compute_and_keep) ops::add(residual, x);
  if (blocks == Blocks::reuse) ops::add(x, residual);
}

}  // namespace reelmesh
