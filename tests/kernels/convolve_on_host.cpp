// The convolution of a batch of tiles, which is cuDNN's on a device, as its description says it.
#include "ops/cuda/convolve.hpp"

namespace reelmesh::gpu {

void convolve(const Tensor& x, const Tensor& w, const Tensor& y) {
  const Shape &xs = x.shape(), &ws = w.shape(), &ys = y.shape();
  const Tensor a = x.to(DType::float32), b = w.to(DType::float32);
  const Tensor sums = Tensor::zeros(ys, DType::float32);
  const std::int64_t pixels = ys[0] * ys[1] * ys[2] * ys[3];
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    const std::int64_t c = pixel % ys[3], r = pixel / ys[3] % ys[2];
    const std::int64_t t = pixel / ys[3] / ys[2] % ys[1], item = pixel / ys[3] / ys[2] / ys[1];
    for (std::int64_t o = 0; o < ys[4]; ++o) {
      float sum = 0;
      for (std::int64_t tap = 0; tap < ws[1] * 9; ++tap) {
        const std::int64_t i = tap / 9, j = tap / 3 % 3, k = tap % 3;
        const float* from =
            a.data<float>() + (((item * xs[1] + t + i) * xs[2] + r + j) * xs[3] + c + k) * xs[4];
        const float* weight = b.data<float>() + (o * ws[1] * 9 + tap) * ws[4];
        for (std::int64_t n = 0; n < xs[4]; ++n) sum += from[n] * weight[n];
      }
      sums.data<float>()[pixel * ys[4] + o] = sum;
    }
  }
  y.copy_from(sums.to(y.dtype()));
}

}  // namespace reelmesh::gpu
