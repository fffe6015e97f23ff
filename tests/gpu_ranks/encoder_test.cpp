// CogVideoX's encoder on GPUs: close to the host's, and with the bits of one GPU on every cut.
#include "models/cogvideox/encoder.hpp"

#include "gpu_ranks/ranks.hpp"
#include "models/reference.hpp"
#include "support/encoding.hpp"
#include "support/numbered.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {
namespace {

class EncoderOnGpu : public RanksTest {};
INSTANTIATE_TEST_SUITE_P(By, EncoderOnGpu, transports, transport_name);

TEST_P(EncoderOnGpu, HasTheBitsOfOneRankAndAgreesWithTheHost) {
  const Reference reference("sincos");
  const auto open = [&](Device on) {
    return CogVideoXEncoder(
        Checkpoint::open(reference.folder / "vae", "diffusion_pytorch_model").on(on), reference.vae,
        DType::float32);
  };
  const CogVideoXEncoder there = open(device), here = open({});
  std::mt19937 random(4);
  const Shape cells{3, 5};
  const Tensor pixels = encoder_pixels(10, 8 * cells[0], 8 * cells[1]);
  const Tensor noise = random_tensor({3, reference.vae.latent_channels, 3, 5}, 1);
  const auto on = [&](const CogVideoXEncoder& encoder, const Layout& layout) {
    return encoded(encoder, pixels, layout, world, 0.7, noise);
  };
  const Encoded one = on(there, Layout::on_one_rank(cells, world.size(), 0));
  const Encoded cut = on(there, random_partition(cells, world.size(), random));
  EXPECT_TRUE(same_bits(cut.moments, one.moments));
  EXPECT_TRUE(same_bits(cut.sample, one.sample));
  const Encoded host = on(here, Layout::cut(cells, 0, world.size()));
  EXPECT_LT(relative_error(cut.moments, host.moments), 1e-5);
  EXPECT_LT(relative_error(cut.sample, host.sample), 1e-5);
}

}  // namespace
}  // namespace reelmesh::test
