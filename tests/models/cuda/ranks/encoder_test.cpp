// Encoders on GPUs: close to the host's, and with the bits of one GPU on every cut.
#include "support/encoding.hpp"
#include "support/gpu_ranks.hpp"
#include "support/long.hpp"
#include "support/numbered.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {
namespace {

class EncoderOnGpu : public RanksTest {};
INSTANTIATE_TEST_SUITE_P(By, EncoderOnGpu, testing::ValuesIn(transports_of_models()),
                         transport_name);

TEST_P(EncoderOnGpu, HasTheBitsOfOneRankAndAgreesWithTheHost) {
  const std::int64_t frames = 10;
  const Shape cells{3, 5};
  std::mt19937 random(4);
  std::vector<EncoderKind> kinds{{"cogvideox", "sincos"}, {"wan", "ti2v"}};
  if (tests_are_long())
    kinds.insert(kinds.end(), {{"wan", "bfloat16"}, {"opensora", "v1_0"}, {"opensora", "v1_2"}});
  for (const EncoderKind& kind : kinds) {
    const OpenedEncoder there = open_encoder(kind, DType::float32, device);
    const OpenedEncoder here = open_encoder(kind, DType::float32);
    const Tensor pixels = encoder_pixels(frames, here.side * cells[0], here.side * cells[1]);
    const Tensor noise =
        random_tensor({here.encoder->latent_frames(frames), here.channels, cells[0], cells[1]}, 1);
    const auto on = [&](const OpenedEncoder& opened, const Layout& layout) {
      return encoded(*opened.encoder, pixels, layout.with_axis(0, noise.shape(0)), world, 0.7,
                     noise);
    };
    const Encoded one = on(there, Layout::on_one_rank(cells, world.size(), 0));
    const Encoded cut = on(there, random_partition(cells, world.size(), random));
    EXPECT_TRUE(same_bits(cut, one)) << kind.name();
    const Encoded host = on(here, Layout::cut(cells, 0, world.size()));
    EXPECT_LT(relative_error(cut.moments, host.moments), 1e-5) << kind.name();
    EXPECT_LT(relative_error(cut.sample, host.sample), 1e-5) << kind.name();
  }
}

}  // namespace
}  // namespace reelmesh::test
