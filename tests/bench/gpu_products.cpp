// The matrix products of CogVideoX with every algorithm that cuBLASLt proposes: times, and whether
// the bits are those of the reference (ops/cuda/linear.hpp).
#include <array>

#include "bench/gpu_bench.hpp"
#include "ops/cuda/linear.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::bench {

void bench_products(Bench& bench) {
  struct Shape {
    const char* name;
    std::int64_t in, out;
  };
  constexpr std::array<Shape, 5> shapes{{{"2b/qkv", 1920, 5760},
                                         {"5b/qkv", 3072, 9216},
                                         {"5b/out", 3072, 3072},
                                         {"5b/up", 3072, 12288},
                                         {"5b/down", 12288, 3072}}};
  // All tokens of a clip with guidance, and the share of one of eight ranks.
  constexpr std::array<std::int64_t, 2> counts{35552, 4096};
  const std::int64_t all_rows = bench.tiny() ? 1040 : counts[0] / 2;
  fmt::print(
      "\n| product | rows | algorithm | ms | TFLOP/s | bits |\n| --- | ---: | --- | ---: | ---: | "
      "--- "
      "|\n");
  for (const auto& [name, in, out] : shapes) {
    for (const std::int64_t count : counts) {
      const std::int64_t rows = bench.tiny() ? count / 32 : count;
      const std::int64_t inner = bench.tiny() ? in / 32 : in, outer = bench.tiny() ? out / 8 : out;
      bench.guarded(fmt::format("{}/{}", name, rows), [&] {
        const Tensor x = bench.random_tensor({rows, inner});
        const Tensor w = bench.random_tensor({outer, inner}, 0.02F);
        const auto timings = gpu::time_products(x, w, {}, all_rows);
        for (std::size_t i = 0; i < timings.size(); ++i) {
          const auto& [seconds, same_bits] = timings[i];
          fmt::print("| {} | {} | {} | {:.4g} | {:.4g} | {} |\n", name, rows,
                     i == 0 ? "reference" : fmt::format("proposal {}", i), seconds * 1e3,
                     seconds > 0 ? 2e-12 * double(rows) * double(inner * outer) / seconds : 0.0,
                     seconds == 0 ? "failed"
                     : same_bits  ? "same"
                                  : "other");
          std::fflush(stdout);
        }
      });
    }
  }
}

}  // namespace reelmesh::bench
