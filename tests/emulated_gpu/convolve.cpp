// gpu::convolve on the emulated GPU, from its description in ops/cuda/convolve.hpp. On a real GPU
// cuDNN computes it.
//
//   REELMESH_EMULATED_CUDNN=91002           emulates cuDNN 9.10.2; default 9.19.0
//   REELMESH_EMULATED_CUDNN_CONVOLUTION=N   its first N engines cannot run on this rank; each has
//                                           other bits
//   REELMESH_EMULATED_CUDNN_CONVOLUTIONS_FASTEST=N  its engine N is the fastest on this rank: other
//                                           engines take 20 ms more. 3 has the bits of 0. Without
//                                           it, none is measured
#include "ops/cuda/convolve.hpp"

#include <cudnn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
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

// Engines with other bits. The next engine has the bits of the first.
constexpr std::int64_t engines = 3;

// The engine that is the fastest on this rank; -1: none is measured.
std::int64_t fastest_engine() {
  const char* text = std::getenv("REELMESH_EMULATED_CUDNN_CONVOLUTIONS_FASTEST");
  return text == nullptr ? -1 : std::atol(text);
}

// Held by value: a graph may run it again after the tensors are destroyed.
struct Problem {
  DType dtype;
  Shape x, w, y;
  std::int64_t stride;
  std::int64_t engine;
  const std::byte *from, *weight;
  std::byte* into;
  // Zeros before the taps, so that other products are added first.
  std::int64_t shift() const { return 3 * (engine % engines); }

  void run() const {
    if (const std::int64_t fastest = fastest_engine(); fastest >= 0 && engine != fastest) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const std::int64_t taps = w[1] * w[2] * w[3], in = w[4], out = w[0];
    std::vector<float> plain(static_cast<std::size_t>(numel(w)));
    convert(weight, dtype, plain.data(), DType::float32, numel(w));
    emulated::RightOperand right(shift() + taps * in, out);
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t k = 0; k < taps * in; ++k) {
        right.at(shift() + k, o) = plain[static_cast<std::size_t>(o * taps * in + k)];
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
        pixel += shift();
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

// The first engine that can run on this rank.
std::int64_t first_engine() {
  const char* text = std::getenv("REELMESH_EMULATED_CUDNN_CONVOLUTION");
  return text == nullptr ? 0 : std::atol(text);
}
using Key = std::pair<ConvolutionShape, bool>;
std::int64_t& engine_of(const Key& key) {
  static std::map<Key, std::int64_t> used;
  return used.try_emplace(key, first_engine()).first->second;
}

std::string name_of_engine(std::int64_t engine) {
  return engine == 0 ? "" : engine == engines ? ", a faster engine" : ", another engine";
}

void run_engine(std::int64_t engine, const Tensor& x, const Tensor& w, std::int64_t stride,
                Tensor& y) {
  const Device device = x.device();
  const Problem problem{x.dtype(),
                        x.shape(),
                        w.shape(),
                        y.shape(),
                        stride,
                        engine,
                        static_cast<const std::byte*>(x.address_on(device)),
                        static_cast<const std::byte*>(w.address_on(device)),
                        static_cast<std::byte*>(y.address_on(device))};
  cuda::check(emulated::enqueue(cuda::stream(device), {"convolve", [problem] { problem.run(); }}),
              "convolve");
}

}  // namespace

// However long it takes, so that a busy machine finds the same engines.
void measure_convolution(Device device, const ConvolutionShape& shape, bool tf32, bool reproducible,
                         double /*seconds*/) {
  constexpr double enough = 10;
  std::int64_t& used = engine_of({shape, tf32});
  if (fastest_engine() < 0) return;
  const auto& [dtype, source, weight, stride] = shape;
  const Tensor x = cancelling_numbers(device, dtype, source, 1);
  const Tensor w = cancelling_numbers(device, dtype, weight, -1);
  Tensor y =
      Tensor::empty({source[0], source[1] - weight[1] + 1, (source[2] - weight[2]) / stride + 1,
                     (source[3] - weight[3]) / stride + 1, weight[0]},
                    dtype, device);
  const std::vector<std::int64_t> proposed{first_engine(), fastest_engine()};
  std::vector<std::function<void()>> calls;
  for (const std::int64_t engine : proposed) {
    calls.push_back([&, engine, step = shape.stride] { run_engine(engine, x, w, step, y); });
  }
  used = proposed[fastest_call(device, calls, y, reproducible, enough).index];
}

std::string convolution_choice(Device /*device*/, const ConvolutionShape& shape, bool tf32,
                               std::size_t attempt) {
  if (attempt == 0) return std::to_string(engine_of({shape, tf32}));
  const std::int64_t engine = first_engine() + static_cast<std::int64_t>(attempt);
  require(engine < engines, Status::unavailable, "the emulated cuDNN has no other engine");
  return std::to_string(engine);
}

bool use_convolution(Device /*device*/, const ConvolutionShape& shape, bool tf32,
                     const std::string& choice) {
  const std::int64_t engine = std::stol(choice);
  if (engine < first_engine()) return false;
  engine_of({shape, tf32}) = engine;
  return true;
}

void convolve(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y) {
  const std::int64_t engine = engine_of({{x.dtype(), x.shape(), w.shape(), stride}, tf32});
  trace::recorder().kernels.insert("convolutions: emulated cuDNN" + name_of_engine(engine));
  run_engine(engine, x, w, stride, y);
}

std::vector<EngineTiming> time_convolutions(const Tensor& x, const Tensor& w, std::int64_t stride,
                                            bool tf32, Tensor& y) {
  const auto seconds = measure_seconds(x.device(), {[&] { convolve(x, w, stride, tf32, y); }});
  return {{"emulated engine", seconds.front(), true}};
}

}  // namespace reelmesh::gpu
