#include "models/common/channels_last.hpp"

namespace reelmesh {

Tensor channels_last(const Tensor& latents, float factor, DType dtype) {
  const std::int64_t frames = latents.shape(0), channels = latents.shape(1);
  const std::int64_t pixels = latents.shape(2) * latents.shape(3);
  Tensor out = Tensor::empty({frames, latents.shape(2), latents.shape(3), channels}, DType::float32,
                             latents.device());
  const Tensor rounded = latents.to(dtype).to(DType::float32);
  for (std::int64_t t = 0; t < frames && !out.device().only_shapes; ++t) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const float* from = rounded.data<float>() + (t * channels + c) * pixels;
      float* into = out.data<float>() + t * pixels * channels + c;
      for (std::int64_t i = 0; i < pixels; ++i) into[i * channels] = factor * from[i];
    }
  }
  return out.to(dtype);
}

}  // namespace reelmesh
