// Times the encoder of a checkpoint's autoencoder on a random clip, and measures its peak memory:
//   mpirun -n 4 build/tests/bench_encode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]
// FRAMES: of the clip; ROWS and COLUMNS: extents of the latents (8 × 8 pixels each). Output as of
// bench_decode.
#include <cstdio>
#include <random>
#include <string>

#include "busy_time.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/decode_layouts.hpp"

int main(int argc, char** argv) {
  using namespace reelmesh;
  const comm::Environment mpi;
  const auto world = comm::Group::world();
  if (argc < 6) {
    std::fputs("bench_encode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]\n", stderr);
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  const std::int64_t frames = std::stoll(argv[2]);
  const DType dtype = std::string(argv[5]) == "bfloat16" ? DType::bfloat16 : DType::float32;
  const auto config = CogVideoXVaeConfig::read(Config::read(folder / "config.json"));
  const CogVideoXEncoder encoder(Checkpoint::open(folder, "diffusion_pytorch_model"), config,
                                 dtype);
  const Shape shape{encoded_frames(frames), config.latent_channels, std::stoll(argv[3]),
                    std::stoll(argv[4])};
  const Layout latents = test::cogvideox_decode_layout(config, shape, world.size()).latents;
  const Layout cut =
      latents.without_axis(0).scaled(0, 8).scaled(1, 8).with_axis(0, frames).with_axis(3, 3);
  Sharded pixels{Tensor::empty(own_box(cut, world).extent, DType::uint8), cut, world};
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  for (std::uint8_t& x : pixels.local.span<std::uint8_t>()) x = static_cast<std::uint8_t>(random());
  const auto no_noise = [](std::span<float> box) { std::ranges::fill(box, 0.0F); };
  for (int i = 0; i < (argc > 6 ? std::atoi(argv[6]) : 1); ++i) {
    measure(world, [&] { encoder.sample(pixels, latents, 1, no_noise); });
  }
  return 0;
}
