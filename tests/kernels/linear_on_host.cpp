// Products, which are cuBLASLt's on a device: of float32 numbers, without bias.
#include "ops/cuda/linear.hpp"

namespace reelmesh::gpu {

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              ops::Activation activation) {
  expect(bias.empty() && activation == ops::Activation::none, "product with an epilogue");
  const std::int64_t in = weight.shape(1), out = weight.shape(0), rows = x.numel() / in;
  const Tensor y = Tensor::zeros({rows, out}, DType::float32);
  for (std::int64_t i = 0; i < rows * out; ++i) {
    const float* a = x.data<float>() + i / out * in;
    const float* b = weight.data<float>() + i % out * in;
    for (std::int64_t k = 0; k < in; ++k) y.data<float>()[i] += a[k] * b[k];
  }
  return y;
}

}  // namespace reelmesh::gpu
