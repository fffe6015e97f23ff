// The encoder on groups of 1 to 8 ranks: random clips, cut into random rectangles (some empty), are
// encoded to the bits of one rank.
#include "models/cogvideox/encoder.hpp"

#include "models/reference.hpp"
#include "random_cuts.hpp"
#include "support/encoding.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::Reference;
using reelmesh::test::same_bits;

class Encoder : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Encoder, ::testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(Encoder, HasTheBitsOfOneRankOnEveryCut) {
  const Reference reference("rotary");
  const CogVideoXEncoder encoder(
      Checkpoint::open(reference.folder / "vae", "diffusion_pytorch_model"), reference.vae,
      GetParam());
  test::for_random_cuts(12, 18, [&](const test::RandomCut& clip) {
    const auto& [group, frames, rows, columns, cut, seed] = clip;
    const Tensor pixels = test::encoder_pixels(frames, 8 * rows, 8 * columns);
    const Tensor noise =
        random_tensor({encoded_frames(frames), reference.vae.latent_channels, rows, columns}, seed)
            .to(GetParam())
            .to(DType::float32);
    const auto on = [&](const Layout& cells) {
      return test::encoded(encoder, pixels, cells, clip.group, 0.7, noise);
    };
    const test::Encoded one = on(Layout::on_one_rank({rows, columns}, group.size(), 0));
    const test::Encoded parts = on(cut);
    EXPECT_TRUE(same_bits(parts.moments, one.moments)) << frames << " frames, " << to_string(cut);
    EXPECT_TRUE(same_bits(parts.sample, one.sample)) << frames << " frames, " << to_string(cut);
  });
}

}  // namespace
}  // namespace reelmesh
