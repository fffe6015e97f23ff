// Every operation of lib/ops on a GPU at the shapes of real models, beside what the GPU can do:
//   build/tests/bench_gpu [float32|bfloat16|float16] [part of a name]
// Medians of ten measurements, each of as many calls as fill 20 ms, with the host waiting once at
// the end of each.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>

#include "base/report.hpp"
#include "base/trace.hpp"
#include "ops/attention.hpp"
#include "ops/convolution.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "ops/pointwise.hpp"
#include "support/random_tensor.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::bench {
namespace {

using ops::Linear;

double seconds_of(Device device, const std::function<void()>& operation) {
  const auto run = [&](int calls) {
    cuda::synchronize(device);
    const std::int64_t start = trace::now_ns();
    for (int i = 0; i < calls; ++i) operation();
    cuda::synchronize(device);
    return static_cast<double>(trace::now_ns() - start) * 1e-9;
  };
  run(2);  // libraries choose, memory is taken
  const int calls = std::clamp(static_cast<int>(0.02 / run(1)), 1, 1000);
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) times.push_back(run(calls) / calls);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class Bench {
 public:
  Bench(Device device, DType dtype, std::string filter)
      : device_(device), dtype_(dtype), filter_(std::move(filter)) {}

  // Random numbers on the device; the values of a large tensor repeat.
  Tensor numbers(const Shape& shape, float scale = 1.0F) const {
    return numbers(shape, dtype_, scale);
  }
  Tensor numbers(const Shape& shape, DType dtype, float scale = 1.0F) const {
    constexpr std::int64_t some = 1'000'003;
    const std::int64_t count = numel(shape);
    const Tensor values = test::random_tensor({std::min(some, count)}, 1, dtype, scale).on(device_);
    const Tensor all = Tensor::empty({count}, dtype, device_);
    for (std::int64_t first = 0; first < count; first += some) {
      const std::int64_t n = std::min(some, count - first);
      all.rows(first, n).copy_from(values.rows(0, n));
    }
    return all.reshape(shape);
  }

  // make() builds what the operation needs. flops: floating-point operations, or 0; bytes: read and
  // written at least.
  void add(const std::string& name, double flops, double bytes,
           const std::function<std::function<void()>()>& make) {
    if (name.find(filter_) == std::string::npos) return;
    try {
      const std::function<void()> operation = make();
      const double seconds = seconds_of(device_, operation);
      table_.row({name, fmt::format("{:.3f}", seconds * 1e3),
                  flops > 0 ? fmt::format("{:.1f}", flops / seconds * 1e-12) : "",
                  bytes > 0 ? fmt::format("{:.0f}", bytes / seconds * 1e-9) : ""});
    } catch (const Error& error) {
      table_.row({name, error.what()});
    }
  }

  void machine() {
    const std::int64_t n = 8192;
    add("machine: product of 8192 x 8192 x 8192", 2.0 * n * n * n, 0, [=, this] {
      const auto w = std::make_shared<Linear>(numbers({n, n}, 0.01F));
      return [w, x = numbers({n, n})] { (*w)(x); };
    });
    add("machine: copy of 1 GiB", 0, 2.0 * (1 << 30), [=, this] {
      const Tensor x = numbers({(1 << 30) / size_of(dtype_)});
      return [x, y = x.clone()] { y.copy_from(x); };
    });
  }

  // One block of CogVideoX at 49 frames of 480 × 720, both branches of guidance.
  void transformer(const std::string& model, std::int64_t heads) {
    const std::int64_t d = heads * 64, tokens = 226 + 13 * 30 * 45, batch = 2;
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out,
                            ops::Activation activation) {
      const double flops = 2.0 * double(tokens * batch) * double(in) * double(out);
      add(fmt::format("{}: linear {} {} to {}", model, name, in, out), flops, 0, [=, this] {
        const auto w = std::make_shared<Linear>(numbers({out, in}, 0.05F), numbers({out}));
        return [=, x = numbers({tokens, batch, in})] { (*w)(x, activation); };
      });
    };
    linear("qkv", d, 3 * d, ops::Activation::none);
    linear("out", d, d, ops::Activation::none);
    linear("up gelu", d, 4 * d, ops::Activation::gelu_tanh);
    linear("down", 4 * d, d, ops::Activation::none);
    const double pairs = double(batch * heads) * double(tokens) * double(tokens);
    add(model + ": attention", 4 * pairs * 64, 0, [=, this] {
      return [qkv = numbers({tokens, batch, 3, heads, 64})] { ops::attention(qkv, 0.125F); };
    });
    const double bytes = double(tokens * batch * d * size_of(dtype_));
    add(model + ": modulated layer norm", 0, 2 * bytes, [=, this] {
      const ops::Modulation modulation{numbers({batch, 6 * d}), 0, 1};
      return [=, x = numbers({tokens, batch, d}), y = numbers({tokens, batch, d}),
              w = numbers({d})] { ops::modulated_layer_norm(x, w, w, 1e-5F, modulation, y); };
    });
    add(model + ": gated residual", 0, 3 * bytes, [=, this] {
      return [x = numbers({tokens, batch, d}), y = numbers({tokens, batch, d}, 1e-4F),
              table = numbers({batch, 6 * d})] { ops::add_gated(x, y, table, 2); };
    });
    add(model + ": norm of heads and rotation", 0, 2 * bytes, [=, this] {
      const ops::HeadNorm norm{numbers({64}, DType::float32), numbers({64}, DType::float32)};
      return [=, qkv = numbers({tokens, batch, 3, heads, 64}),
              c = numbers({tokens, 64}, DType::float32)] {
        ops::normalise_and_rotate(qkv, norm, c, c);
      };
    });
  }

  void convolution(std::int64_t kt, std::int64_t frames, std::int64_t rows, std::int64_t columns,
                   std::int64_t in, std::int64_t out) {
    const double flops = 2.0 * double(frames * rows * columns) * double(in * out * kt * 9);
    add(fmt::format("vae: convolution {}x3x3 {} to {} of {}x{}x{}", kt, in, out, frames, rows,
                    columns),
        flops, 0, [=, this] {
          const auto w = std::make_shared<ops::Convolution>(numbers({out, in, kt, 3, 3}, 0.02F),
                                                            numbers({out}));
          const ops::RowWindow all{0, rows, rows};
          return [=, x = numbers({frames, rows, columns, in})] { (*w)(x, all, all); };
        });
  }

  void norms_of_images() {
    const std::int64_t frames = 8, rows = 480, columns = 720, n = 128;
    const double bytes = double(frames * rows * columns * n * size_of(dtype_));
    add("vae: group sums", 0, bytes, [=, this] {
      return [x = numbers({frames, rows, columns, n})] { ops::group_sums(x, 32, 8); };
    });
    add("vae: spatial norm", 0, 2 * bytes, [=, this] {
      const Tensor w = numbers({n}, DType::float32), s = numbers({2, 60, 90, n});
      const ops::SpatialNorm norm{{std::vector<float>(32, 0.0F), std::vector<float>(32, 1.0F)},
                                  w,
                                  w,
                                  s,
                                  s,
                                  {0, 0, 0, 0, 1, 1, 1, 1}};
      return [=, x = numbers({frames, rows, columns, n})] { ops::spatial_norm_silu(x, norm, x); };
    });
  }

  std::string str() const { return table_.str(); }

 private:
  Device device_;
  DType dtype_;
  std::string filter_;
  Table table_{{"operation", "ms", "TFLOP/s", "GB/s"}};
};

int run(const std::string& type, const std::string& filter) {
  const Device device = device_of_rank(Backend::cuda, 0);
  const DType dtype = type == "float32"   ? DType::float32
                      : type == "float16" ? DType::float16
                                          : DType::bfloat16;
  Bench bench(device, dtype, filter);
  bench.machine();
  bench.transformer("2b", 30);
  bench.transformer("5b", 48);
  bench.convolution(3, 2, 60, 90, 512, 512);
  bench.convolution(3, 4, 240, 360, 256, 256);
  bench.convolution(3, 8, 480, 720, 128, 128);
  bench.convolution(1, 8, 480, 720, 256, 256);
  bench.norms_of_images();
  std::cout << name_of(dtype) << " on " << to_string(device) << ", CUDA " << cuda_versions() << '\n'
            << bench.str();
  return 0;
}

}  // namespace
}  // namespace reelmesh::bench

int main(int argc, char** argv) {
  try {
    return reelmesh::bench::run(argc > 1 ? argv[1] : "bfloat16", argc > 2 ? argv[2] : "");
  } catch (const reelmesh::Error& error) {
    std::cerr << "bench_gpu: " << error.what() << '\n';
    return static_cast<int>(error.status());
  }
}
