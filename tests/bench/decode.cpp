// Times the decoder of a checkpoint's autoencoder on random latents, and measures its peak memory:
//   mpirun -n 4 build/tests/bench_decode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]
// FRAMES, ROWS and COLUMNS are the extents of the latents. Rank 0 prints one line per repetition:
// wall-clock seconds, and CPU seconds of the ranks outside MPI. The latter show the overhead of
// distributing the work even on a machine that runs other programs.
#include <cstdio>
#include <random>
#include <string>

#include "busy_time.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/decode_layouts.hpp"

int main(int argc, char** argv) {
  using namespace reelmesh;
  const comm::Environment mpi;
  const auto world = comm::Group::world();
  if (argc < 6) {
    std::fputs("bench_decode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]\n", stderr);
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  const Shape shape{std::stoll(argv[2]), 16, std::stoll(argv[3]), std::stoll(argv[4])};
  const DType dtype = std::string(argv[5]) == "bfloat16" ? DType::bfloat16 : DType::float32;
  const auto config = CogVideoXVaeConfig::read(Config::read(folder / "config.json"));
  const CogVideoXDecoder decoder(Checkpoint::open(folder, "diffusion_pytorch_model"), config,
                                 dtype);
  const DecodeLayout layout = test::cogvideox_decode_layout(config, shape, world.size());
  const Layout cut = layout.latents.with_axis(1, shape[1]);
  Sharded latents{Tensor::empty(own_box(cut, world).extent, DType::float32), cut, world};
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::normal_distribution<float> normal;
  for (float& x : latents.local.span<float>()) x = normal(random);

  for (int i = 0; i < (argc > 6 ? std::atoi(argv[6]) : 1); ++i) {
    measure(world, [&] { decoder.pixels(latents, layout); });
  }
  return 0;
}
