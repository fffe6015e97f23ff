#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Converts latents to the decoders' layout, on the host. latents: float32 [frame, channel, row,
/// column] → factor·latents, [frame, row, column, channel] of `dtype`, rounded to it before and
/// after the multiplication, as in the references.
Tensor channels_last(const Tensor& latents, float factor, DType dtype);

}  // namespace reelmesh
