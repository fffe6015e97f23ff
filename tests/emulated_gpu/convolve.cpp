// gpu::convolve on the emulated GPU, from its description in ops/cuda/convolve.hpp. On a real GPU
// cuDNN computes it.
//
//   REELMESH_EMULATED_CUDNN=91002   emulates cuDNN 9.10.2; default 9.19.0
#include "ops/cuda/convolve.hpp"

#include <cudnn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/trace.hpp"
#include "emulated_gpu/product.hpp"
#include "emulated_gpu/stream.hpp"
#include "tensor/convert.hpp"
#include "tensor/cuda/handles.hpp"

std::size_t cudnnGetVersion() {
  const char* text = std::getenv("REELMESH_EMULATED_CUDNN");
  return text == nullptr ? 91900 : static_cast<std::size_t>(std::atol(text));
}

namespace reelmesh::gpu {
namespace {

// Held by value: a graph may run it again after the tensors are destroyed.
struct Problem {
  DType dtype;
  Shape x, w, y;
  std::int64_t stride;
  const std::byte *from, *weight;
  std::byte* into;

  void run() const {
    const std::int64_t taps = w[1] * w[2] * w[3], in = w[4], out = w[0];
    std::vector<float> plain(static_cast<std::size_t>(numel(w)));
    convert(weight, dtype, plain.data(), DType::float32, numel(w));
    emulated::RightOperand right(taps * in, out);
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t k = 0; k < taps * in; ++k) {
        right.at(k, o) = plain[static_cast<std::size_t>(o * taps * in + k)];
      }
    }
    for (std::int64_t item = 0; item < x[0]; ++item) run_item(right, item);
  }

  void run_item(const emulated::RightOperand& right, std::int64_t item) const {
    const std::int64_t numbers = numel(x) / x[0], results = numel(y) / y[0];
    std::byte* target = into + item * results * size_of(dtype);
    std::vector<float> image(static_cast<std::size_t>(numbers));
    convert(from + item * numbers * size_of(dtype), dtype, image.data(), DType::float32, numbers);
    // For small images most tiles of the batch are all zero.
    if (std::all_of(image.begin(), image.end(), [](float v) { return v == 0; })) {
      std::memset(target, 0, static_cast<std::size_t>(results * size_of(dtype)));
      return;
    }
    const std::int64_t run = w[3] * x[4], line = y[3] * y[4];  // elements of a row of taps, of y
    std::vector<float> pixels(static_cast<std::size_t>(y[3] * right.inner()));
    std::vector<float> sums(static_cast<std::size_t>(line));
    for (std::int64_t i = 0; i < y[1] * y[2]; ++i) {
      const std::int64_t t = i / y[2], r = i % y[2];
      float* pixel = pixels.data();
      for (std::int64_t c = 0; c < y[3]; ++c) {
        for (std::int64_t tap = 0; tap < w[1] * w[2]; ++tap, pixel += run) {
          const std::int64_t row = (t + tap / w[2]) * x[2] + r * stride + tap % w[2];
          std::copy_n(image.data() + (row * x[3] + c * stride) * x[4], run, pixel);
        }
      }
      right.multiply(pixels.data(), y[3], sums.data());
      convert(sums.data(), DType::float32, target + i * line * size_of(dtype), dtype, line);
    }
  }
};

}  // namespace

void convolve(const Tensor& x, const Tensor& w, std::int64_t stride, bool /*tf32*/, Tensor& y) {
  trace::recorder().kernels.insert("convolutions: emulated cuDNN");
  const Device device = x.device();
  const Problem problem{x.dtype(),
                        x.shape(),
                        w.shape(),
                        y.shape(),
                        stride,
                        static_cast<const std::byte*>(x.address_on(device)),
                        static_cast<const std::byte*>(w.address_on(device)),
                        static_cast<std::byte*>(y.address_on(device))};
  cuda::check(emulated::enqueue(cuda::stream(device), {"convolve", [problem] { problem.run(); }}),
              "convolve");
}

std::vector<EngineTiming> time_convolutions(const Tensor& x, const Tensor& w, std::int64_t stride,
                                            bool tf32, Tensor& y) {
  const auto seconds = measure_seconds(x.device(), {[&] { convolve(x, w, stride, tf32, y); }});
  return {{"emulated engine", seconds.front(), true}};
}

}  // namespace reelmesh::gpu
