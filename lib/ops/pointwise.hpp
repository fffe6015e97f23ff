#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// x += y in place; same shape and type.
void add(Tensor& x, const Tensor& y);

/// x·y as a new tensor; same shape and type.
Tensor multiply(const Tensor& x, const Tensor& y);

Tensor silu(const Tensor& x);

/// factor·x, rounded once.
Tensor scaled(const Tensor& x, float factor);

/// Adds row t of table [token, channel] to every batch item of token t of x [token, batch,
/// channel].
void add_table(Tensor& x, const Tensor& table);

/// x: [token, channel] or [token, item, channel] → out: [token, batch, channel], every item as
/// often as the batch has room for: first all of the first item.
void repeat_for_batch(const Tensor& x, Tensor& out);

/// Items of several batches, [token, batch, channel] each, as one batch: in the order of `parts`.
Tensor join_batches(std::span<const Tensor> parts);

/// Rows of `table` [id, channel] in the order of `ids` → [id count, channel].
Tensor take_rows(const Tensor& table, std::span<const std::int32_t> ids);

/// Tokens of a latent box. latents: float32 [frame, channel, row, column], extents divisible by the
/// patch → [token, channel·patch_frames·patch·patch] of `dtype`, tokens frame-major, then row, then
/// column; features in the order channel, frame, row, column. (CogVideoX patch embedding)
struct Patch {
  std::int64_t frames = 1;
  std::int64_t rows = 2;
  std::int64_t columns = 2;
};
Tensor patchify(const Tensor& latents, const Patch& patch, DType dtype);

/// The way back for one batch item of tokens [token, batch, channel·frames·rows·columns] →
/// float32 [frame, channel, row, column] with these extents.
Tensor unpatchify(const Tensor& tokens, std::int64_t batch_item, const Patch& patch,
                  const Shape& extents);

/// [frame, row, column, 2·channel] → [2·frame, row, column, channel]: channels 2c and 2c + 1 are
/// channel c of two frames, one after the other.
Tensor channels_to_frames(const Tensor& x);

/// float or bfloat16 [frame, row, column, 3] in −1…1 → uint8: round(255·clamp(x/2 + 1/2, 0, 1)),
/// half to even.
Tensor to_pixels(const Tensor& x);

}  // namespace reelmesh::ops
