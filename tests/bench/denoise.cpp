// Times a denoising step on a mesh of ranks, to be compared with one rank with as many threads:
//
//   OMP_NUM_THREADS=1 mpirun -n 4 --bind-to core build/tests/bench_denoise
//       MODEL_DIR FRAMES STEPS bfloat16 [CFG RING ULYSSES]
//
// Latents and text embeddings are noise; results are not checked. Prints one line: mesh, tokens,
// seconds of the fastest step (maximum over ranks), bytes sent per step and rank, and why the plan
// chose the mesh. Efficiency = seconds on one rank / (ranks × these seconds).
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "base/trace.hpp"
#include "base/units.hpp"
#include "bench/bench_main.hpp"
#include "job/denoise.hpp"
#include "models/cogvideox/transformer.hpp"
#include "ops/onednn.hpp"
#include "plan/denoise.hpp"
#include "sampler/generator.hpp"
#include "support/dry_workloads.hpp"

namespace {

using namespace reelmesh;

void bench(const std::vector<std::string>& words) {
  const comm::Group world = comm::Group::world();
  const std::filesystem::path root = words.at(0);
  const CogVideoXFolder model =
      CogVideoXFolder::open({root, root / "transformer", root / "vae", root / "text_encoder",
                             root / "tokenizer", root / "scheduler"});
  const CogVideoXConfig& config = model.transformer;
  const DType dtype = words.at(3) == "bfloat16" ? DType::bfloat16 : DType::float32;
  const int steps = std::stoi(words.at(2));
  Clip clip;
  clip.record.settings.steps = steps;
  clip.texts.resize(2, std::vector<std::int32_t>(std::size_t(config.max_text_tokens)));
  clip.format.branches = 2;
  clip.latents = {(std::stoi(words.at(1)) - 1) / config.temporal_compression + config.patch.frames,
                  config.sample_height, config.sample_width};
  clip.latent_channels = config.in_channels;
  clip.sampling = {.sampler = model.sampler->make(NoiseSchedule(model.scheduler, steps)),
                   .guidance = {constant_guidance(6), config.out_channels},
                   .noise = {.initial = dtype, .in_step = dtype}};
  MeshRequest request;
  if (words.size() > 4) {
    request = {std::stoi(words.at(4)), std::stoi(words.at(6)), std::stoi(words.at(5))};
  }
  const Family& family = *test::family_of<CogVideoX>(model);
  const DenoiseWorkload workload =
      test::dry_workload(family,
                         test::cogvideox_clip(config, clip.latents, 2, config.max_text_tokens), 1,
                         {dtype, ops::compute_dtype(dtype)})
          .sizes.front()
          .denoise;
  const ChosenLayout chosen = choose_layout(workload, {.mesh = request, .ranks = world.size()});
  const Layout text = chosen.layout().conditioning(config.max_text_tokens, 2, config.text_channels);
  Tensor context = Tensor::zeros(own_box(text, world).extent, DType::float32);
  TorchGenerator generator(1);
  fill_noise(generator, text.global(), own_box(text, world).offset, own_box(text, world).extent,
             context.data<float>());
  const CogVideoXTransformer transformer(model.paths.open(ModelPart::transformer), config, dtype);

  double fastest = 1e300;
  const Batch batch{clip};
  const Conditioning conditioning{context.to(dtype)};
  Denoising denoising(world, chosen.layout(), batch, {&conditioning, 1}, transformer);
  while (!denoising.finished()) {
    world.barrier();
    const std::int64_t since = trace::now_ns();
    denoising.step_together();
    const double seconds = world.max(static_cast<double>(trace::now_ns() - since) * 1e-9);
    fastest = std::min(fastest, seconds);
  }
  const double sent = world.sum(static_cast<double>(trace::recorder().bytes_sent));
  if (world.rank() != 0) return;
  fmt::print("{} ranks, {}, {} tokens: {:.3f} s a step, {} sent a step and rank ({})\n",
             world.size(), to_string(chosen.layout().mesh),
             workload.text_tokens + numel(workload.tokens()), fastest,
             format_bytes(sent / steps / world.size()), chosen.why);
}

}  // namespace

int main(int argc, char** argv) {
  return reelmesh::bench_main(argc, argv, bench,
                              "MODEL_DIR FRAMES STEPS float32|bfloat16 [CFG RING ULYSSES]");
}
