// The decoder on groups of 1 to 8 ranks: random clips, cut into random rectangles (some empty), are
// decoded to the bits of one rank.
#include "models/cogvideox/decoder.hpp"

#include "models/decode_layouts.hpp"
#include "models/reference.hpp"
#include "models/wan/decoder.hpp"
#include "models/wan/reference.hpp"
#include "random_cuts.hpp"
#include "support/spread.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::Reference;
using reelmesh::test::same_bits;

// pixels: layout of the latents' [row, column].
Tensor decoded(const CogVideoXDecoder& decoder, const Tensor& latents, const Layout& pixels,
               const comm::Group& group) {
  const Layout frames = pixels.with_axis(0, decoded_frames(latents.shape(0)));
  const DecodeLayout layout{pixels.with_axis(0, latents.shape(0)), frames, frames};
  const Sharded part = test::spread(latents, layout.latents.with_axis(1, latents.shape(1)), group);
  return test::gathered(decoder.pixels(part, layout).pixels);
}

class Decoder : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Decoder, ::testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(Decoder, HasTheBitsOfOneRankOnEveryCut) {
  const Reference reference("rotary");
  const CogVideoXDecoder decoder(
      Checkpoint::open(reference.folder / "vae", "diffusion_pytorch_model"), reference.vae,
      GetParam());
  test::for_random_cuts(11, 5, [&](const test::RandomCut& clip) {
    const auto& [group, frames, rows, columns, cut, seed] = clip;
    const int ranks = group.size();
    const Tensor latents =
        random_tensor({frames, reference.vae.latent_channels, rows, columns}, seed);
    const Tensor one =
        decoded(decoder, latents, Layout::on_one_rank({rows, columns}, ranks, 0), group);
    EXPECT_TRUE(same_bits(decoded(decoder, latents, cut, group), one)) << to_string(cut);
    const Layout planned =
        test::cogvideox_decode_layout(reference.vae, latents.shape(), ranks).latents;
    EXPECT_TRUE(same_bits(decoded(decoder, latents, planned.without_axis(0), group), one))
        << ranks << " ranks, " << rows << " x " << columns;
  });
}

TEST_P(Decoder, OfWanHasTheBitsOfOneRankOnEveryCut) {
  // That of TI2V-5B in the other type.
  const test::WanReference reference(GetParam() == DType::bfloat16 ? "ti2v" : "bfloat16");
  const WanDecoder decoder(reference.weights("vae"), reference.vae, GetParam());
  const auto on = [&](const Tensor& latents, const Layout& pixels, const comm::Group& group) {
    const std::int64_t count = latents.shape(0);
    const Layout frames = pixels.with_axis(0, WanVaeConfig::decoded_frames(count));
    const DecodeLayout layout{pixels.with_axis(0, count), frames, frames};
    const Sharded part =
        test::spread(latents, layout.latents.with_axis(1, latents.shape(1)), group);
    return test::gathered(decoder.pixels(part, layout).pixels);
  };
  test::for_random_cuts(13, 4, [&](const test::RandomCut& clip) {
    const auto& [group, frames, rows, columns, cut, seed] = clip;
    const Tensor latents =
        random_tensor({frames, reference.vae.latent_channels, rows, columns}, seed);
    const Tensor one = on(latents, Layout::on_one_rank({rows, columns}, group.size(), 0), group);
    EXPECT_TRUE(same_bits(on(latents, cut, group), one)) << to_string(cut);
    const Layout planned =
        test::wan_decode_layout(reference.vae, latents.shape(), group.size()).latents;
    EXPECT_TRUE(same_bits(on(latents, planned.without_axis(0), group), one))
        << group.size() << " ranks, " << rows << " x " << columns;
  });
}

}  // namespace
}  // namespace reelmesh
