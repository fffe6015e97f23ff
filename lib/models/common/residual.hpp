#pragma once
#include "layout/relayout.hpp"
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

// Of a clip: `count` items of the batch from `first` on, of a residual [token, item, channel].

/// → float32 on the host.
inline Tensor batch_items(const Tensor& residual, std::int64_t first, std::int64_t count) {
  const Box box{{0, first, 0}, {residual.shape(0), count, residual.shape(2)}};
  Tensor values = Tensor::empty(box.extent, residual.dtype());
  copy_box(box, residual.on({}), whole_box(residual.shape()), values, box);
  return values.to(DType::float32);
}

/// Replaces them; values: as batch_items() gives them.
inline void set_batch_items(Tensor& residual, std::int64_t first, const Tensor& values) {
  const Box box{{0, first, 0}, values.shape()};
  Tensor all = residual.on(residual.device().host()).clone();
  copy_box(box, values.to(all.dtype()), box, all, whole_box(all.shape()));
  residual.copy_from(all);
}

}  // namespace reelmesh
