// Times each operation of lib/ops on a GPU at the shapes of real models, relative to the GPU's
// measured peak rates; also whole transformer layers and loading of weights. Prints rows of a
// Markdown table as they are measured. "of the machine" is relative to the faster of two large
// matrix products of the same dtype, or to a device copy. Exit status 1 if a row failed.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>

#include "bench/gpu_bench.hpp"
#include "comm/group.hpp"
#include "ops/attention.hpp"
#include "ops/attention_backward.hpp"
#include "ops/convolution.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "ops/pointwise.hpp"
#include "ops/token_products.hpp"
#include "sampler/guidance.hpp"
#include "sampler/steps.hpp"

namespace reelmesh::bench {
namespace {

using ops::Linear;

constexpr const char* usage =
    "usage: bench_gpu [OPTIONS] [bfloat16] [float16] [float32]\n"
    "  --filter TEXT   only rows whose names contain it, and those of the machine\n"
    "  --peak TFLOPS   adds a column of shares of this rate, such as the 989 that an H100 is sold "
    "with\n"
    "  --once          calls the operations, with no times and no layers: for a profiler\n"
    "  --tiny          small sizes, for an emulated GPU\n"
    "  --products      only matrix products, with every algorithm that cuBLASLt proposes\n"
    "  --attention     only attention, with every engine of cuDNN that can be used\n"
    "  --convolutions  only convolutions, with every engine of cuDNN that can be used\n"
    "Without a dtype all three are timed.\n";

// Peak rates: large matrix products and a device copy. Measured whatever --filter says.
void machine(Bench& bench) {
  for (const std::int64_t n :
       bench.tiny() ? std::vector<std::int64_t>{64} : std::vector<std::int64_t>{4096, 8192}) {
    bench.guarded("machine/product", [&] {
      const Linear w(bench.random_tensor({n, n}, 0.01F));
      const Tensor x = bench.random_tensor({n, n});
      const double flops = 2.0 * double(n) * double(n) * double(n);
      const double seconds = bench.call_seconds([&] { w(x); });
      bench.set_peak_flops(flops / seconds);
      bench.row(fmt::format("machine/product_{0}x{0}x{0}", n), seconds, flops, 0);
    });
  }
  bench.guarded("machine/copy", [&] {
    const std::int64_t bytes = bench.tiny() ? 1 << 16 : 1 << 30;
    const Tensor x = bench.random_tensor({bytes / size_of(bench.dtype())});
    Tensor y = x.clone();
    const double seconds = bench.call_seconds([&] { y.copy_from(x); });
    bench.set_peak_bandwidth(2.0 * double(bytes) / seconds);
    bench.row(fmt::format("machine/copy_of_{}_MiB", bytes >> 20), seconds, 0, 2.0 * double(bytes));
  });
}

// Sizes in latents of 49 frames of 480 × 720 pixels, with classifier-free guidance (batch 2).
struct Clip {
  std::int64_t frames = 13, rows = 60, columns = 90, text = 226, batch = 2;
  std::int64_t video() const { return frames * (rows / 2) * (columns / 2); }
  std::int64_t tokens() const { return text + video(); }
};

Clip measured_clip(const Bench& bench) { return bench.tiny() ? Clip{2, 8, 12, 10, 2} : Clip{}; }

// Gradients in a training on one clip without guidance: of attention, and of the largest weight.
void gradients(Bench& bench, const std::string& model, std::int64_t heads) {
  const std::int64_t tokens = measured_clip(bench).tokens(), d = heads * 64;
  const double pairs = double(heads) * double(tokens) * double(tokens);
  bench.add(fmt::format("{}/attention_backward_{}x{}x64", model, tokens, heads), 10 * pairs * 64, 0,
            [&] {
              const Tensor x = bench.random_tensor({tokens, 1, heads, 64});
              return [x, forward = ops::attention_forward(x, x, x, 0.125F)] {
                ops::attention_backward(x, x, x, forward, x, 0.125F);
              };
            });
  bench.add(fmt::format("{}/token_products_{}x{}x{}", model, tokens, 4 * d, d),
            2.0 * double(tokens) * double(4 * d) * double(d), 0, [&] {
              return [a = bench.random_tensor({tokens, 4 * d}),
                      b = bench.random_tensor({tokens, d})] { ops::token_products(a, b); };
            });
}

// The operations of one transformer layer.
void transformer(Bench& bench, const std::string& model, std::int64_t heads) {
  const Clip clip = measured_clip(bench);
  const std::int64_t d = heads * 64, tokens = clip.tokens(), batch = clip.batch;
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out,
                          ops::Activation activation) {
    const double flops = 2.0 * double(tokens * batch) * double(in) * double(out);
    bench.add(
        fmt::format("{}/linear_{}_{}x{}x{}", model, name, tokens * batch, in, out), flops, 0,
        [&, in, out, activation] {
          const auto w = std::make_shared<Linear>(bench.random_tensor({out, in}, 0.05F),
                                                  bench.random_tensor({out}));
          // The reference of a job: all tokens of a clip.
          return [=, x = bench.random_tensor({tokens, batch, in})] { (*w)(x, activation, tokens); };
        });
  };
  linear("query", d, d, ops::Activation::none);
  linear("key_value", d, 2 * d, ops::Activation::none);
  linear("up_gelu", d, 4 * d, ops::Activation::gelu_tanh);
  linear("down", 4 * d, d, ops::Activation::none);
  const double pairs = double(batch * heads) * double(tokens) * double(tokens);
  // cuDNN (where it has a kernel for this dtype), then the kernel of this project.
  for (const bool own : {false, true}) {
    bench.add(
        fmt::format("{}/attention_{}{}x{}x{}x64", model, own ? "own_" : "", tokens, batch, heads),
        4 * pairs * 64, 0, [&, own] {
          return [own, qkv = bench.random_tensor({tokens, batch, 3, heads, 64})] {
            ops::attention(qkv, 0.125F, {}, {.own_attention = own});
          };
        });
  }
  const double bytes = double(tokens * batch * d * size_of(bench.dtype()));
  bench.add(model + "/modulated_layer_norm", 0, 2 * bytes, [&] {
    const ops::Modulation modulation{bench.random_tensor({batch, 6 * d}), 0, 1};
    const Tensor w = bench.random_tensor({d}, DType::float32);
    return [=, x = bench.random_tensor({tokens, batch, d}),
            y = bench.random_tensor({tokens, batch, d})]() mutable {
      ops::modulated_layer_norm(x, w, w, 1e-5F, modulation, y);
    };
  });
  bench.add(model + "/add_gated", 0, 3 * bytes, [&] {
    return
        [x = bench.random_tensor({tokens, batch, d}),
         y = bench.random_tensor({tokens, batch, d}, 1e-4F),
         table = bench.random_tensor({batch, 6 * d})]() mutable { ops::add_gated(x, y, table, 2); };
  });
  bench.add(model + "/add_gated_and_norm", 0, 4 * bytes, [&] {
    const Tensor w = bench.random_tensor({d}, DType::float32);
    return [=, x = bench.random_tensor({tokens, batch, d}),
            y = bench.random_tensor({tokens, batch, d}, 1e-4F),
            table = bench.random_tensor({batch, 6 * d}),
            out = bench.random_tensor({tokens, batch, d})]() mutable {
      ops::add_gated_and_norm(x, y, {table, 2, {}}, w, w, 1e-5F, {table, 0, 1, {}}, out);
    };
  });
  for (const bool rotate : {false, true}) {
    bench.add(model + (rotate ? "/head_norm_and_rotation" : "/head_norm"), 0, 2 * bytes, [&] {
      const ops::HeadNorm norm{bench.random_tensor({64}, DType::float32),
                               bench.random_tensor({64}, DType::float32)};
      const Tensor angles = rotate ? bench.random_tensor({tokens, 64}, DType::float32) : Tensor();
      return [=, q = bench.random_tensor({tokens, batch, 1, heads, 64})]() mutable {
        ops::normalise_and_rotate(q, norm, angles, angles);
      };
    });
  }
}

// The operations of a step before and after the transformer layers.
void pre_and_post_ops(Bench& bench) {
  const Clip clip = measured_clip(bench);
  const Shape extents{clip.frames, 16, clip.rows, clip.columns};
  const double latent = double(numel(extents)) * 4,
               tokens = double(numel(extents) * size_of(bench.dtype()));
  const auto latents = [&] { return bench.random_tensor(extents, DType::float32); };
  bench.add("step/patchify", 0, latent + tokens, [&] {
    return [x = latents(), dtype = bench.dtype()] { ops::patchify(x, {}, dtype); };
  });
  bench.add("step/unpatchify", 0, latent + tokens, [&] {
    return [=, x = bench.random_tensor({clip.video(), clip.batch, 64})] {
      ops::unpatchify(x, 1, {}, extents);
    };
  });
  bench.add("step/guidance", 0, 3 * latent, [&] {
    return [a = latents(), b = latents()]() mutable { guide_channels(6, b.shape(1), a, b); };
  });
  bench.add("step/ddim", 0, 3 * latent, [&] {
    return [v = latents(), x = latents()]() mutable { ddim_step({0.5F, 0.5F, 0.5F, 0.5F}, v, x); };
  });
  bench.add("step/dpm", 0, 6 * latent, [&] {
    DpmCoefficients c{};
    c.sample = 0.5F;
    c.second_order = true;
    return [=, v = latents(), noise = latents(), clean = latents(), x = latents()]() mutable {
      dpm_step(c, v, noise, clean, x);
    };
  });
}

void convolution(Bench& bench, std::int64_t kt, const Shape& image, std::int64_t in,
                 std::int64_t out) {
  const std::int64_t frames = image[0], rows = image[1], columns = image[2];
  const double flops = 2.0 * double(frames * rows * columns) * double(in * out * kt * 9);
  bench.add(
      fmt::format("vae/convolution_{}x3x3_{}_to_{}_{}x{}x{}", kt, in, out, frames, rows, columns),
      flops, 0, [&] {
        const auto w = std::make_shared<ops::Convolution>(
            bench.random_tensor({out, in, kt, 3, 3}, 0.02F), bench.random_tensor({out}));
        const ops::RowWindow all{0, rows, rows};
        return [=, x = bench.random_tensor({frames, rows, columns, in})] { (*w)(x, all, all); };
      });
}

void group_norm(Bench& bench, const Shape& image, std::int64_t n) {
  const Shape shape{image[0], image[1], image[2], n};
  const std::string size_text = fmt::format("_{}x{}x{}x{}", shape[0], shape[1], shape[2], n);
  const double bytes = double(numel(shape) * size_of(bench.dtype()));
  bench.add("vae/group_sums" + size_text, 0, bytes,
            [&] { return [x = bench.random_tensor(shape)] { ops::group_sums(x, 32, 8); }; });
  bench.add("vae/spatial_norm_silu" + size_text, 0, 2 * bytes, [&] {
    const std::int64_t latents = 2, frames = shape[0];
    const Tensor w = bench.random_tensor({n}, DType::float32);
    const Tensor s = bench.random_tensor({latents, shape[1] / 8, shape[2] / 8, n});
    const Tensor of_groups = bench.random_tensor({32}, DType::float32);
    ops::SpatialNorm norm{{of_groups, of_groups}, w, w, s, s, {}};
    for (std::int64_t t = 0; t < frames; ++t) norm.latent_frame.push_back(t * latents / frames);
    return [=, x = bench.random_tensor(shape), y = bench.random_tensor(shape)]() mutable {
      ops::spatial_norm_silu(x, norm, y);
    };
  });
}

void decoder(Bench& bench) {
  if (bench.tiny()) {
    convolution(bench, 3, {2, 8, 8}, 16, 16);
    group_norm(bench, {2, 16, 16}, 32);
    return;
  }
  convolution(bench, 3, {2, 60, 90}, 512, 512);
  convolution(bench, 3, {4, 120, 180}, 256, 256);
  convolution(bench, 3, {8, 240, 360}, 256, 256);
  convolution(bench, 3, {8, 480, 720}, 128, 128);
  convolution(bench, 1, {8, 480, 720}, 256, 256);
  group_norm(bench, {4, 120, 180}, 512);
  group_norm(bench, {8, 480, 720}, 128);
  bench.add("vae/to_pixels_8x480x720", 0, double(8 * 480 * 720 * 3 * (size_of(bench.dtype()) + 1)),
            [&] {
              return [x = bench.random_tensor({8, 480, 720, 3})] { ops::to_pixels(x); };
            });
}

// Host to device, through the same path as the weights of a checkpoint.
void upload(Bench& bench) {
  const std::int64_t in = bench.tiny() ? 64 : 3072, out = 4 * in;
  const std::int64_t row = in * size_of(bench.dtype());
  bench.add(fmt::format("machine/upload_of_weights_{}x{}", out, in), 0, double(out * row), [&] {
    const Tensor from = test::random_tensor({64, in}, 1, bench.dtype());
    return [=, device = bench.device(), dtype = bench.dtype()] {
      const Linear uploaded(
          {in,
           out,
           dtype,
           [=](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
             for (std::int64_t i = 0; i < count; ++i) {
               std::memcpy(static_cast<std::byte*>(into) + i * stride * size_of(dtype),
                           static_cast<const std::byte*>(from.raw()) + (first + i) % 64 * row,
                           static_cast<std::size_t>(row));
             }
           },
           device,
           {}});
    };
  });
}

bool run(DType dtype, const BenchOptions& options) {
  const Device device = device_of_rank(Backend::cuda, 0);
  fmt::print("\n{} on {}, CUDA {}\n\n", name_of(dtype), name_of(device), cuda_versions());
  Bench bench(device, dtype, options);
  if (options.products || options.attention || options.convolutions) {
    if (options.products) bench_products(bench);
    if (options.attention) bench_attention(bench);
    if (options.convolutions) bench_convolutions(bench);
    return !bench.failed();
  }
  if (!bench.once()) {
    bench.head();
    machine(bench);
  }
  transformer(bench, "2b", bench.tiny() ? 2 : 30);
  transformer(bench, "5b", bench.tiny() ? 3 : 48);
  gradients(bench, "5b", bench.tiny() ? 3 : 48);
  if (!bench.once()) {
    bench_layers(bench, "2b");
    bench_layers(bench, "5b");
  }
  pre_and_post_ops(bench);
  decoder(bench);
  upload(bench);
  return !bench.failed();
}

int run(const std::vector<std::string>& words) {
  BenchOptions options;
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--tiny") {
      options.tiny = true;
    } else if (words[i] == "--filter" && i + 1 < words.size()) {
      options.filter = words[++i];
    } else if (words[i] == "--peak" && i + 1 < words.size()) {
      options.peak = std::strtod(words[++i].c_str(), nullptr);
      require(options.peak > 0, Status::usage, "--peak '{}': expected TFLOP/s", words[i]);
    } else if (words[i] == "--products") {
      options.products = true;
    } else if (words[i] == "--attention") {
      options.attention = true;
    } else if (words[i] == "--convolutions") {
      options.convolutions = true;
    } else if (words[i] == "--help") {
      std::cout << usage;
      return 0;
    } else if (words[i] == "--once") {
      options.once = true;
    } else {
      const std::vector<DType> known{DType::bfloat16, DType::float16, DType::float32};
      const auto found =
          std::find_if(known.begin(), known.end(), [&](DType d) { return words[i] == name_of(d); });
      require(found != known.end(), Status::usage, "unknown option or dtype '{}'\n{}", words[i],
              usage);
      dtypes.push_back(*found);
    }
  }
  if (dtypes.empty()) dtypes = {DType::bfloat16, DType::float16, DType::float32};
  bool good = true;
  for (const DType dtype : dtypes) good = run(dtype, options) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace reelmesh::bench

int main(int argc, char** argv) {
  const reelmesh::comm::Environment mpi;
  try {
    return reelmesh::bench::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const reelmesh::Error& error) {
    std::cerr << "bench_gpu: " << error.what() << '\n';
    return static_cast<int>(error.status());
  }
}
