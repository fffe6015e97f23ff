// Times a call of STDiT, at the width of the released model, on any number of ranks:
//
//   OMP_NUM_THREADS=1 mpirun -n 4 --bind-to core build/tests/bench_opensora
//       FOLDER LAYERS FRAMES PIXELS CALLS [float32|bfloat16 [CLIPS]]
//
// Writes random weights with LAYERS layers to FOLDER if it has none. CLIPS clips form one batch.
// Prints one line: clips, tokens of a clip, wall-clock and CPU seconds of the fastest call (maximum
// over ranks), floating-point operations and bytes sent. Efficiency = seconds on one rank /
// (ranks × these seconds).
#include <algorithm>
#include <ctime>
#include <iostream>

#include "base/trace.hpp"
#include "base/units.hpp"
#include "bench/bench_main.hpp"
#include "layout/space_time.hpp"
#include "models/checkpoints/random_model.hpp"
#include "models/opensora/transformer.hpp"
#include "plan/denoise.hpp"

namespace {

using namespace reelmesh;

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void bench(const std::vector<std::string>& words) {
  const comm::Group world = comm::Group::world();
  const std::filesystem::path folder = words.at(0);
  ModelPreset preset = model_preset("opensora-1.0-16x256x256");
  preset.parts.at(ModelPart::transformer)["depth"] = std::stoi(words.at(1));
  if (world.rank() == 0 && !std::filesystem::exists(folder / "transformer")) {
    write_random_part(preset, ModelPart::transformer, DType::float32, 1, folder);
  }
  world.barrier();
  const bool half = words.size() > 5 && words[5] == "bfloat16";
  const DType dtype = half ? DType::bfloat16 : DType::float32;
  const auto config = STDiTConfig::read(Config::read(folder / "transformer" / "config.json"));
  const STDiT model(Checkpoint::open(folder / "transformer", "diffusion_pytorch_model"), config,
                    dtype);
  const std::int64_t side = std::stoi(words.at(3));
  const STDiTClip clip{{std::stoi(words.at(2)), side / 8, side / 8}, side, side, 8};
  DenoiseWorkload workload;
  workload.latents = clip.latents;
  workload.patch = {1, config.patch.rows, config.patch.columns};
  const DenoiseLayout layout = frame_layouts(workload, {.ranks = world.size()}).front().layout;
  const std::int64_t clips = words.size() > 6 ? std::stoi(words[6]) : 1;
  const STDiTPlacement placement(model, world, SpaceTime::of(layout, config.heads), clip, clips);
  Tensor latents = Tensor::zeros(
      own_box(layout.latents.with_axis(1, config.in_channels), world).extent, DType::float32);
  for (std::int64_t i = 0; i < latents.numel(); ++i) {
    latents.data<float>()[i] = static_cast<float>(i % 13) / 6 - 1;
  }
  const STDiTContext context =
      model.encode_context(Tensor::zeros({20, config.text_channels}, dtype));
  const std::vector<Tensor> all_latents(static_cast<std::size_t>(clips), latents);
  const std::vector<STDiTContext> texts(static_cast<std::size_t>(clips), context);

  double fastest = 1e300, processor = 1e300;
  const int calls = std::stoi(words.at(4));
  for (int i = 0; i < calls; ++i) {
    world.barrier();
    const std::int64_t start = trace::now_ns();
    const double before = processor_seconds();
    (void)model(placement, all_latents, texts, 500);
    processor = std::min(processor, world.max(processor_seconds() - before));
    fastest = std::min(fastest, world.max(static_cast<double>(trace::now_ns() - start) * 1e-9));
  }
  const double sent = world.sum(static_cast<double>(trace::recorder().bytes_sent)) / calls;
  const double flops = world.sum(static_cast<double>(trace::recorder().flops)) / calls;
  if (world.rank() != 0) return;
  std::cout << fmt::format(
      "{} ranks, {} x tokens {}, {} layers, {}: {:.3f} s a call, {:.3f} s of the processor, {:.3f} "
      "TFLOP, {} sent\n",
      world.size(), clips, to_string(layout.tokens.global()), config.layers, name_of(dtype),
      fastest, processor, flops * 1e-12, format_bytes(sent));
}

}  // namespace

int main(int argc, char** argv) {
  return reelmesh::bench_main(argc, argv, bench,
                              "FOLDER LAYERS FRAMES PIXELS CALLS [float32|bfloat16 [CLIPS]]");
}
