// The encoder on groups of 1 to 8 ranks: random clips, cut into random rectangles (some empty), are
// encoded to the bits of one rank.
#include "models/cogvideox/encoder.hpp"

#include "models/reference.hpp"
#include "support/encoding.hpp"
#include "support/numbered.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::random_partition;
using reelmesh::test::random_tensor;
using reelmesh::test::Reference;
using reelmesh::test::same_bits;

class Encoder : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Encoder, ::testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(Encoder, HasTheBitsOfOneRankOnEveryCut) {
  const Reference reference("rotary");
  const auto world = test::world();
  const CogVideoXEncoder encoder(
      Checkpoint::open(reference.folder / "vae", "diffusion_pytorch_model"), reference.vae,
      GetParam());
  std::mt19937 random(12);
  for (int ranks = 1; ranks <= world.size(); ++ranks) {
    const comm::Group group = world.range(0, ranks);
    for (int i = 0; i < 2; ++i) {
      const std::int64_t frames = random() % 18 + 1;
      const std::int64_t rows = random() % 6 + 1, columns = random() % 6 + 1;
      const Layout cut = random_partition({rows, columns}, ranks, random);
      if (!group.member()) continue;
      const Tensor pixels = test::encoder_pixels(frames, 8 * rows, 8 * columns);
      const Tensor noise =
          random_tensor({encoded_frames(frames), reference.vae.latent_channels, rows, columns},
                        unsigned(ranks * 10 + i))
              .to(GetParam())
              .to(DType::float32);
      const auto on = [&](const Layout& cells) {
        return test::encoded(encoder, pixels, cells, group, 0.7, noise);
      };
      const test::Encoded one = on(Layout::on_one_rank({rows, columns}, ranks, 0));
      const test::Encoded parts = on(cut);
      EXPECT_TRUE(same_bits(parts.moments, one.moments)) << frames << " frames, " << to_string(cut);
      EXPECT_TRUE(same_bits(parts.sample, one.sample)) << frames << " frames, " << to_string(cut);
    }
  }
}

}  // namespace
}  // namespace reelmesh
