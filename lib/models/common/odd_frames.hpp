#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Frames 1, 3, 5, … of x [frame, …], of which there is an even number. Those of a causal
/// convolution over 3 frames are all of one with stride 2. Half of its work is wasted, in two of
/// some fifty convolutions, on images of a size near that of the latents.
inline Tensor odd_frames(const Tensor& x) {
  Shape shape = x.shape();
  expect(shape[0] % 2 == 0, "halving of {} frames", shape[0]);
  shape[0] /= 2;
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  for (std::int64_t t = 0; t < shape[0]; ++t) out.rows(t, 1).copy_from(x.rows(2 * t + 1, 1));
  return out;
}

}  // namespace reelmesh
