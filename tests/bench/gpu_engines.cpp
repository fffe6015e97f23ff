// cuDNN's attention and convolutions with every engine that can be used: times, and whether the
// bits are those of the first, which is the reference (ops/cuda/fused_attention.hpp, convolve.hpp).
#include "bench/gpu_bench.hpp"
#include "ops/cuda/convolution.hpp"
#include "ops/cuda/convolve.hpp"
#include "ops/cuda/fused_attention.hpp"

namespace reelmesh::bench {
namespace {

void head(const char* what) {
  fmt::print("\n| {} | engine | ms | TFLOP/s | bits |\n| --- | --- | ---: | ---: | --- |\n", what);
}

void rows(const std::string& name, double flops, const std::vector<gpu::EngineTiming>& timings) {
  for (const auto& [engine, seconds, same_bits] : timings) {
    fmt::print("| {} | {} | {:.4g} | {:.4g} | {} |\n", name, engine, seconds * 1e3,
               1e-12 * flops / seconds, same_bits ? "same" : "other");
  }
  if (timings.empty()) fmt::print("| {} | none | | | |\n", name);
  std::fflush(stdout);
}

}  // namespace

void bench_attention(Bench& bench) {
  if (size_of(bench.dtype()) != 2) return;  // cuDNN attends in 16-bit types only
  struct Case {
    const char* name;
    std::int64_t heads, batch, queries, keys;
  };
  const std::vector<Case> cases{{"2b", 30, 2, 17776, 17776},
                                {"5b", 48, 2, 17776, 17776},
                                {"5b, a quarter of the heads", 12, 2, 17776, 17776},
                                // Shares of them, which end with idle multiprocessors.
                                {"5b, 6 heads", 6, 2, 17776, 17776},
                                {"5b, 3 heads", 3, 2, 17776, 17776},
                                {"5b, 2 heads", 2, 2, 17776, 17776},
                                {"5b, 1 head", 1, 2, 17776, 17776},
                                {"5b, an eighth of the queries", 48, 2, 2222, 17776}};
  head("attention");
  for (const auto& [name, heads, batch, queries, keys] : cases) {
    bench.guarded(name, [&] {
      const std::int64_t smaller = bench.tiny() ? 32 : 1;
      const ops::AttentionShape shape{.dtype = bench.dtype(),
                                      .batch = batch,
                                      .heads = bench.tiny() ? 1 : heads,
                                      .channels = 64,
                                      .queries = queries / smaller,
                                      .keys = keys / smaller};
      if (!gpu::has_fused_attention(bench.device(), shape.dtype, shape.keys, shape.channels)) {
        return rows(name, 0, {});
      }
      const double pairs = double(shape.batch * shape.heads) * double(shape.queries * shape.keys);
      rows(name, 4 * pairs * 64, gpu::time_fused_attention(bench.device(), shape));
    });
  }
}

void bench_convolutions(Bench& bench) {
  struct Case {
    const char* name;
    std::int64_t kt, frames, in, out, stride;
  };
  const std::vector<Case> cases{{"decoder, 512 to 512 channels", 3, 2, 512, 512, 1},
                                {"decoder, 256 to 256 channels", 3, 8, 256, 256, 1},
                                {"decoder, 128 to 128 channels", 3, 8, 128, 128, 1},
                                {"decoder, upsampling of 256 channels", 1, 8, 256, 256, 1},
                                {"encoder, 3 to 128 channels", 3, 8, 8, 128, 1},
                                {"encoder, downsampling of 128 channels", 1, 8, 128, 128, 2}};
  constexpr std::int64_t items = 16, kernel = 3;
  head("convolution of 16 tiles");
  for (const auto& [name, kt, frames, in, out, stride] : cases) {
    bench.guarded(name, [&] {
      const std::int64_t few = bench.tiny() ? 8 : 0, inner = few > 0 ? few : in,
                         outer = few > 0 ? few : out, count = few > 0 ? 1 : frames;
      const ops::Window window{.kernel = kernel, .stride = stride};
      const std::int64_t height = gpu::Convolution::tile_rows,
                         width = gpu::Convolution::tile_columns;
      const Tensor x = bench.random_tensor(
          {items, count + kt - 1, window.reach(height), window.reach(width), inner});
      const Tensor w = bench.random_tensor({outer, kt, kernel, kernel, inner}, 0.02F);
      Tensor y = Tensor::empty({items, count, height, width, outer}, bench.dtype(), bench.device());
      const double flops = 2.0 * double(y.numel()) * double(inner * kt * kernel * kernel);
      rows(name, flops, gpu::time_convolutions(x, w, stride, false, y));
    });
  }
}

}  // namespace reelmesh::bench
