#include "sampler/sampler.hpp"

#include "base/error.hpp"

namespace reelmesh {

Tensor clean_latents(const CleanFactors& factors, const Tensor& prediction, const Tensor& x) {
  const Shape& shape = x.shape();
  expect(shape.size() == 4 && prediction.shape().size() == 4 && prediction.shape(0) == shape[0] &&
             prediction.shape(1) >= shape[1] && prediction.shape(2) == shape[2] &&
             prediction.shape(3) == shape[3],
         "clean latents of {} with a prediction {}", shape, prediction.shape());
  const Device host = x.device().host();
  Tensor clean = Tensor::empty(shape, DType::float32, host);
  if (x.device().only_shapes) return clean;
  const Tensor from = x.on(host), predicted = prediction.on(host);
  const std::int64_t frame = shape[1] * shape[2] * shape[3];
  const std::int64_t stride = prediction.shape(1) * shape[2] * shape[3];
  for (std::int64_t t = 0; t < shape[0]; ++t) {
    const float* latent = from.data<float>() + t * frame;
    const float* p = predicted.data<float>() + t * stride;
    float* to = clean.data<float>() + t * frame;
    for (std::int64_t j = 0; j < frame; ++j) {
      to[j] = factors.sample * latent[j] + factors.prediction * p[j];
    }
  }
  return clean;
}

}  // namespace reelmesh
