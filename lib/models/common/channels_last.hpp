#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Latents as the decoders take them, on the host. latents: float32 [frame, channel, row, column] →
/// factor·latents as [frame, row, column, channel] of `dtype`, rounded to it before and after the
/// product, as the references do.
Tensor channels_last(const Tensor& latents, float factor, DType dtype);

}  // namespace reelmesh
