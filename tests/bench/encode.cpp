// Times the encoder of a checkpoint's autoencoder on a random clip, and measures its peak memory:
//   mpirun -n 4 build/tests/bench_encode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]
// FRAMES: of the clip; ROWS and COLUMNS: extents of the latents (8 × 8 pixels each). Output as of
// bench_decode.
#include <cstdio>
#include <random>
#include <string>

#include "busy_time.hpp"
#include "models/autoencoder/encoder.hpp"
#include "models/checkpoints/parts.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/decode_layouts.hpp"

namespace reelmesh {
namespace {

struct Opened {
  std::unique_ptr<const GaussianEncoder> encoder;
  Layout latents;
};

Opened open(const std::filesystem::path& folder, DType dtype, std::int64_t frames,
            std::int64_t rows, std::int64_t columns, int ranks) {
  const Config config = Config::read(folder / "config.json");
  const Checkpoint weights = Checkpoint::open(folder, "diffusion_pytorch_model");
  if (model_class(ModelPart::vae, config) == "AutoencoderKLCogVideoX") {
    const auto vae = CogVideoXVaeConfig::read(config);
    const Shape shape{encoded_frames(frames), vae.latent_channels, rows, columns};
    return {std::make_unique<CogVideoXEncoder>(weights, vae, dtype),
            test::cogvideox_decode_layout(vae, shape, ranks).latents};
  }
  const auto vae = OpenSoraVaeConfig::read(config);
  const Shape shape{vae.latent_frames(frames), vae.image.latent_channels, rows, columns};
  return {std::make_unique<OpenSoraEncoder>(weights, vae, dtype),
          test::opensora_decode_layout(vae, shape, frames, ranks).latents};
}

}  // namespace
}  // namespace reelmesh

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
  const auto [encoder, latents] =
      open(folder, dtype, frames, std::stoll(argv[3]), std::stoll(argv[4]), world.size());
  const Layout cut = encoder->frames_of(latents, frames).scaled(1, 8).scaled(2, 8).with_axis(3, 3);
  Sharded pixels{Tensor::empty(own_box(cut, world).extent, DType::uint8), cut, world};
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  for (std::uint8_t& x : pixels.local.span<std::uint8_t>()) x = static_cast<std::uint8_t>(random());
  const auto no_noise = [](std::span<float> box) { std::ranges::fill(box, 0.0F); };
  for (int i = 0; i < (argc > 6 ? std::atoi(argv[6]) : 1); ++i) {
    measure(world, [&, &of = *encoder, &to = latents] { of.sample(pixels, to, 1, no_noise); });
  }
  return 0;
}
