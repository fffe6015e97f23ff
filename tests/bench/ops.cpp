// Times each operation of lib/ops at the shapes of real models, relative to the machine's peak:
//   OMP_NUM_THREADS=1 build/tests/bench_ops --benchmark_filter='2b/'
// Names are model/operation/type. The tests run the filter ^tiny/ only.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <functional>
#include <iostream>

#include "bench/machine.hpp"
#include "ops/attention.hpp"
#include "ops/convolution.hpp"
#include "ops/group_norm.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "ops/operation.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh::bench {
namespace {

using ops::Linear;

// Pseudo-random values in −factor…factor, cheap to generate.
Tensor random_tensor(const Shape& shape, DType dtype, float factor = 1.0F) {
  Tensor t = Tensor::empty(shape, DType::float32);
  std::uint32_t state = 1;
  for (float& x : t.span<float>()) {
    state = state * 1664525U + 1013904223U;
    x = factor * (static_cast<float>(state >> 8) * 0x1p-23F - 1.0F);
  }
  return t.to(dtype);
}

// The work of an operation: floating-point operations, or (if flops is 0) bytes read and written.
struct Work {
  double flops = 0, bytes = 0;
};

// make() builds the operands and returns the operation. It is called only for benchmarks that the
// filter selects.
void add(const std::string& model, const std::string& name, DType dtype, Work work,
         const std::function<std::function<void()>()>& make) {
  auto* made = benchmark::RegisterBenchmark(
      fmt::format("{}/{}/{}", model, name, name_of(dtype)).c_str(), [=](benchmark::State& state) {
        const std::function<void()> operation = make();
        operation();
        for (auto _ : state) operation();
        const auto rate = [&](double amount) {
          return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
        };
        if (work.flops > 0) {
          state.counters["GFLOP/s"] = rate(work.flops * 1e-9);
          state.counters["of machine"] = rate(work.flops / peaks().product(dtype));
        } else {
          state.counters["GB/s"] = rate(work.bytes * 1e-9);
          state.counters["of machine"] = rate(work.bytes / peaks().copy);
        }
      });
  made->Unit(benchmark::kMillisecond);
  if (omp_get_max_threads() > 1) made->UseRealTime();
}

struct Model {
  std::string name;
  std::int64_t heads, channels;        ///< channels per head
  std::int64_t frames, rows, columns;  ///< in patches
  std::int64_t text, context, time;
  std::int64_t width() const { return heads * channels; }
  std::int64_t tokens() const { return text + frames * rows * columns; }
};

void linear(const Model& m, const std::string& name, DType t, std::int64_t rows, std::int64_t in,
            std::int64_t out, ops::Activation activation = ops::Activation::none) {
  const double n = double(rows) * double(in) * double(out);
  add(m.name, fmt::format("linear_{}_{}x{}x{}", name, rows, in, out), t, {2 * n, 0}, [=] {
    const auto layer =
        std::make_shared<Linear>(random_tensor({out, in}, t, 0.05F), random_tensor({out}, t));
    return [=, x = random_tensor({rows, in}, t)] { (*layer)(x, activation); };
  });
}

void packing(const Model& m, DType t, std::int64_t in, std::int64_t out) {
  const double bytes = double(in) * double(out) * double(size_of(t));
  add(m.name, fmt::format("pack_{}x{}", in, out), t, {0, 2 * bytes}, [=] {
    return [w = random_tensor({out, in}, t)] { Linear layer(w); };
  });
}

void attention(const Model& m, const std::string& name, DType t, std::int64_t tokens,
               std::int64_t batch, std::int64_t heads, std::int64_t channels, bool biased) {
  const double flops = 4.0 * double(batch * heads) * double(tokens * tokens) * double(channels);
  add(m.name, fmt::format("{}_{}x{}x{}x{}", name, tokens, batch, heads, channels), t, {flops, 0},
      [=] {
        const Tensor bias =
            biased ? random_tensor({heads, tokens, tokens}, DType::float32) : Tensor();
        return [=, qkv = random_tensor({tokens, batch, 3, heads, channels}, t)] {
          ops::attention(qkv, 0.125F, bias);
        };
      });
}

void transformer(const Model& m, DType t) {
  const std::int64_t d = m.width(), batch = 2, rows = m.tokens() * batch;
  linear(m, "qkv", t, rows, d, 3 * d);
  linear(m, "out", t, rows, d, d);
  linear(m, "up_gelu", t, rows, d, 4 * d, ops::Activation::gelu_tanh);
  linear(m, "down", t, rows, 4 * d, d);
  linear(m, "modulation", t, 1, m.time, 6 * d);
  linear(m, "text", t, m.text * batch, m.context, d);
  packing(m, t, d, 4 * d);
  attention(m, "attention", t, m.tokens(), batch, m.heads, m.channels, false);

  const Shape shape{m.tokens(), batch, d};
  const double bytes = double(numel(shape)) * double(size_of(t));
  const auto ones = [](std::int64_t n) { return random_tensor({n}, DType::float32); };
  add(m.name, "modulated_layer_norm", t, {0, 2 * bytes}, [=] {
    const ops::Modulation modulation{random_tensor({1, 6 * d}, t), 0, 1};
    return [=, x = random_tensor(shape, t), out = random_tensor(shape, t), w = ones(d)]() mutable {
      ops::modulated_layer_norm(x, w, w, 1e-5F, modulation, out);
    };
  });
  add(m.name, "add_gated", t, {0, 3 * bytes}, [=] {
    return [x = random_tensor(shape, t), y = random_tensor(shape, t, 1e-6F),
            table = random_tensor({1, 6 * d}, t)]() mutable { ops::add_gated(x, y, table, 2); };
  });
  add(m.name, "head_norm_and_rotation", t, {0, 2 * bytes}, [=] {
    const Tensor table = random_tensor({m.tokens(), m.channels}, DType::float32);
    const Tensor w = ones(m.channels);
    return [=, q = random_tensor({m.tokens(), batch, 1, m.heads, m.channels}, t)]() mutable {
      ops::normalise_and_rotate(q, {w, w, 1e-6F}, table, table);
    };
  });
  const Shape latents{m.frames, 16, 2 * m.rows, 2 * m.columns};
  add(m.name, "patchify", t, {0, double(numel(latents)) * double(4 + size_of(t))},
      [=] { return [=, x = random_tensor(latents, DType::float32)] { ops::patchify(x, {}, t); }; });
}

void text_encoder(const Model& m, DType t, std::int64_t heads, std::int64_t hidden) {
  const std::int64_t d = m.context, tokens = m.text;
  linear(m, "t5_qkv", t, tokens, d, 3 * heads * 64);
  linear(m, "t5_gate_gelu", t, tokens, d, hidden, ops::Activation::gelu_tanh);
  linear(m, "t5_down", t, tokens, hidden, d);
  attention(m, "t5_attention", t, tokens, 1, heads, 64, true);
  const double bytes = double(tokens * size_of(t));
  add(m.name, "t5_rms_norm", t, {0, 2 * bytes * double(d)}, [=] {
    return [x = random_tensor({tokens, 1, d}, t), w = random_tensor({d}, t)] {
      ops::rms_norm(x, w, 1e-6F);
    };
  });
  add(m.name, "t5_add", t, {0, 3 * bytes * double(d)}, [=] {
    return [x = random_tensor({tokens, 1, d}, t),
            y = random_tensor({tokens, 1, d}, t, 1e-6F)]() mutable { ops::add(x, y); };
  });
  add(m.name, "t5_multiply", t, {0, 3 * bytes * double(hidden)}, [=] {
    return [x = random_tensor({tokens, 1, hidden}, t), y = random_tensor({tokens, 1, hidden}, t)] {
      ops::multiply(x, y);
    };
  });
}

void convolution(const Model& m, DType t, std::int64_t in, std::int64_t out, std::int64_t kt,
                 std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t frames = 2;
  const double flops = 2.0 * double(frames * rows * columns) * double(in * out * kt * 9);
  add(m.name, fmt::format("convolution_{}x3x3_{}_to_{}_{}x{}", kt, in, out, rows, columns), t,
      {flops, 0}, [=] {
        Shape shape{out, in, kt, 3, 3};
        const auto layer = std::make_shared<ops::Convolution>(random_tensor(shape, t, 0.02F),
                                                              random_tensor({out}, t));
        return [=, x = random_tensor({frames, rows, columns, in}, t)] {
          (*layer)(x, {0, rows, rows}, {0, rows, rows});
        };
      });
}

void cross_attention(const Model& m, DType t, std::int64_t queries, std::int64_t keys) {
  const double flops = 4.0 * double(m.heads * queries * keys) * double(m.channels);
  add(m.name, fmt::format("cross_attention_{}x{}x{}x{}", queries, keys, m.heads, m.channels), t,
      {flops, 0}, [=] {
        const Tensor kv = random_tensor({keys, 1, 2, m.heads, m.channels}, t);
        return [=, q = random_tensor({queries, 1, m.heads, m.channels}, t)] {
          ops::attend(q, kv, 0.125F);
        };
      });
}

// Spatial attention: each frame is a sequence of its own; batch 2 for guidance.
void attention_in_frames(const Model& m, DType t) {
  const std::int64_t tokens = m.rows * m.columns, rows = m.frames * tokens, batch = 2;
  const double flops = 4.0 * double(batch * m.heads * rows * tokens) * double(m.channels);
  add(m.name,
      fmt::format("attention_in_frames_{}x{}x{}x{}x{}", m.frames, tokens, batch, m.heads,
                  m.channels),
      t, {flops, 0}, [=] {
        const Tensor kv = random_tensor({rows, batch, 2, m.heads, m.channels}, t);
        return [=, q = random_tensor({rows, batch, m.heads, m.channels}, t)] {
          ops::attend(q, kv, 0.125F, m.frames);
        };
      });
}

// Norms of the decoder; the group statistics are given, as if already summed over ranks.
void decoder_norms(const Model& m, DType t, std::int64_t rows, std::int64_t columns,
                   std::int64_t channels) {
  constexpr std::int64_t frames = 2, groups = 32;
  const Shape shape{frames, rows, columns, channels};
  const double bytes = double(numel(shape)) * double(size_of(t));
  const std::string size = fmt::format("{}x{}x{}", rows, columns, channels);
  add(m.name, "group_sums_" + size, t, {0, bytes},
      [=] { return [x = random_tensor(shape, t)] { ops::group_sums(x, groups, 4); }; });
  const Tensor of_groups = random_tensor({groups}, DType::float32);
  const ops::GroupStatistics statistics{of_groups, of_groups};
  const Tensor ones = random_tensor({channels}, DType::float32);
  add(m.name, "spatial_norm_silu_" + size, t, {0, 2 * bytes}, [=] {
    const Tensor latents = random_tensor({1, rows / 2, columns / 2, channels}, t);
    const ops::SpatialNorm norm{statistics, ones, ones, latents, latents, {0, 0}};
    return [=, x = random_tensor(shape, t), out = random_tensor(shape, t)]() mutable {
      ops::spatial_norm_silu(x, norm, out);
    };
  });
  add(m.name, "group_norm_silu_" + size, t, {0, 2 * bytes}, [=] {
    return [=, x = random_tensor(shape, t)] { ops::group_norm(x, statistics, ones, ones, true); };
  });
}

// What a trace adds to 1000 operations: the bytes of its spans.
void spans(const std::string& name, trace::Level level) {
  constexpr int count = 1000;
  add("trace", name, DType::float32, {0, count * sizeof(trace::Span)}, [=] {
    return [=] {
      trace::recorder().level = level;
      for (int i = 0; i < count; ++i) const ops::Operation operation(trace::spans::norm, {1, 1});
      trace::recorder().spans.clear();
      trace::recorder().level = trace::Level::stages;
    };
  });
}

void add_all() {
  spans("1000_operations_not_recorded", trace::Level::layers);
  spans("1000_operations_recorded", trace::Level::ops);
  for (const DType t : {DType::float32, DType::bfloat16}) {
    // Latents 3 × 30 × 44, with guidance.
    const Model tiny{"tiny", 2, 16, 2, 3, 4, 10, 48, 32};
    const Model m2b{"2b", 30, 64, 3, 15, 22, 226, 4096, 512};
    const Model m5b{"5b", 48, 64, 3, 15, 22, 226, 4096, 512};
    for (const Model& m : {tiny, m2b, m5b}) transformer(m, t);
    text_encoder(tiny, t, 2, 80);
    text_encoder(m2b, t, 64, 10240);
    // STDiT-XL/2, 16 frames of 16 × 16 patches: spatial, temporal and cross-attention.
    const Model stdit{"stdit", 16, 72, 16, 16, 16, 120, 4096, 1152};
    attention_in_frames(stdit, t);
    attention(stdit, "attention_along_time", t, 16, 256, 16, 72, false);
    cross_attention(stdit, t, 4096, 120);
    attention({"heads_of_128", 8, 128, 0, 0, 0, 0, 0, 0}, "attention", t, 1216, 1, 8, 128, false);
    cross_attention(tiny, t, 20, 10);
    decoder_norms(tiny, t, 8, 16, 32);
    decoder_norms(m2b, t, 60, 88, 512);
    decoder_norms(m2b, t, 240, 352, 128);
    convolution(tiny, t, 16, 16, 3, 6, 8);
    convolution(m2b, t, 512, 512, 3, 30, 44);
    convolution(m2b, t, 256, 256, 3, 60, 88);
    convolution(m2b, t, 256, 256, 1, 120, 176);
    convolution(m2b, t, 128, 128, 3, 240, 352);
  }
}

// Prints one line per benchmark as soon as it is finished.
class Lines : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    std::cout << fmt::format("{:<58}{:>12}{:>18}{:>12}\n", "model/operation/type", "time", "rate",
                             "of machine");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const char* unit = run.counters.count("GFLOP/s") > 0 ? "GFLOP/s" : "GB/s";
      const bool one_thread = omp_get_max_threads() == 1;
      std::cout << fmt::format(
                       "{:<58}{:>9.3f} ms{:>10.1f} {:<7}{:>9.0f} %\n", run.run_name.function_name,
                       one_thread ? run.GetAdjustedCPUTime() : run.GetAdjustedRealTime(),
                       run.counters.at(unit).value, unit, 100 * run.counters.at("of machine").value)
                << std::flush;
    }
  }
};

}  // namespace
}  // namespace reelmesh::bench

int main(int argc, char** argv) {
  using namespace reelmesh::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  const Peaks& p = peaks();
  std::cout << fmt::format(
                   "The machine, {} thread(s): products {:.1f} GFLOP/s in float32, {:.1f} in "
                   "bfloat16; copies {:.1f} GB/s; new memory {:.1f} GB/s\n",
                   omp_get_max_threads(), p.float32 * 1e-9, p.bfloat16 * 1e-9, p.copy * 1e-9,
                   p.touch * 1e-9)
            << std::flush;
  add_all();
  Lines lines;
  if (benchmark::RunSpecifiedBenchmarks(&lines) == 0) return 64;
  return 0;
}
