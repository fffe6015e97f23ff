// The encoders on groups of 1 to 8 ranks: random clips, cut into random rectangles (some empty),
// are encoded to the bits of one rank.
#include <numeric>

#include "models/decode_layouts.hpp"
#include "random_cuts.hpp"
#include "support/encoding.hpp"
#include "support/long.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::random_tensor;

class Encoder : public ::testing::TestWithParam<std::tuple<test::EncoderKind, DType>> {};
INSTANTIATE_TEST_SUITE_P(
    Of, Encoder,
    ::testing::Combine(::testing::Values(test::EncoderKind{"cogvideox", "rotary"},
                                         test::EncoderKind{"wan", "bfloat16"},
                                         test::EncoderKind{"wan", "ti2v"},
                                         test::EncoderKind{"opensora", "v1_0"},
                                         test::EncoderKind{"opensora", "v1_2"}),
                       ::testing::Values(DType::float32, DType::bfloat16)),
    [](const auto& row) {
      return fmt::format("{}_{}", std::get<0>(row.param).name(), name_of(std::get<1>(row.param)));
    });

TEST_P(Encoder, HasTheBitsOfOneRankOnEveryCut) {
  const auto& [kind, dtype] = GetParam();
  // v1_2 encodes each image as v1_0 does, and then frames, so one type of each is enough here.
  const std::string left_out = dtype == DType::bfloat16 ? "opensora_v1_2" : "opensora_v1_0";
  if (kind.name() == left_out && !test::tests_are_long()) GTEST_SKIP() << "only in tests/long";
  const test::OpenedEncoder opened = open_encoder(kind, dtype);
  test::for_random_cuts(12, 22, [&](const test::RandomCut& clip) {
    const auto& [group, frames, rows, columns, cut, seed] = clip;
    const Tensor pixels = test::encoder_pixels(frames, opened.side * rows, opened.side * columns);
    const Shape shape{opened.encoder->latent_frames(frames), opened.channels, rows, columns};
    const Tensor noise = random_tensor(shape, seed).to(std::get<1>(GetParam())).to(DType::float32);
    const auto on = [&](const Layout& cells) {
      return test::encoded(*opened.encoder, pixels, cells, clip.group, 0.7, noise);
    };
    const auto whole = [&](const Layout& cells) { return cells.with_axis(0, shape[0]); };
    const test::Encoded one = on(whole(Layout::on_one_rank({rows, columns}, group.size(), 0)));
    EXPECT_TRUE(same_bits(on(whole(cut)), one)) << frames << " frames, " << to_string(cut);
    if (!opened.opensora) return;
    RankWeights weights(std::size_t(group.size()));
    std::iota(weights.begin(), weights.end(), 1);
    const Layout planned =
        test::opensora_decode_layout(*opened.opensora, shape, frames, group.size(), weights)
            .latents;
    EXPECT_TRUE(same_bits(on(planned), one)) << frames << " frames, " << to_string(planned);
  });
}

}  // namespace
}  // namespace reelmesh
