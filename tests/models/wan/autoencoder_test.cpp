// Compares Wan's autoencoder with diffusers, and checks that all cuts and chunks give the same
// bits.
#include "layout/clip_layout.hpp"
#include "models/wan/decoder.hpp"
#include "models/wan/encoder.hpp"
#include "models/wan/reference.hpp"
#include "support/encoding.hpp"
#include "support/expect_error.hpp"
#include "support/spread.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::gathered;
using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::rms_error;
using reelmesh::test::same_bits;
using reelmesh::test::spread;
using reelmesh::test::WanReference;

// Frames [frame, row, column, 3] of latents [frame, channel, row, column], as they leave the
// decoder. cells: layout of the latents' [row, column].
Tensor decoded_frames_of(const WanDecoder& decoder, std::int64_t pixels_per_latent,
                         const Tensor& latents, const Layout& cells, std::int64_t chunk = 1) {
  const Shape& shape = latents.shape();
  const Sharded part = spread(latents, cells.with_axis(0, shape[0]).with_axis(1, shape[1]));
  const Layout video = cells.scaled(0, pixels_per_latent)
                           .scaled(1, pixels_per_latent)
                           .with_axis(0, WanVaeConfig::decoded_frames(shape[0]))
                           .with_axis(3, 3);
  Tensor local = Tensor::empty(own_box(video, test::world()).extent, DType::float32);
  decoder.decode(
      part,
      [&](std::int64_t first, const Tensor& frames) {
        local.rows(first, frames.shape(0)).copy_from(frames.to(DType::float32));
      },
      chunk);
  return gathered({local, video, test::world()});
}

Tensor clamped(const Tensor& x) {
  Tensor out = x.clone();
  for (float& value : out.span<float>()) value = std::clamp(value, -1.0F, 1.0F);
  return out;
}

Layout rows_cut(const Tensor& latents) {
  return Layout::cut({latents.shape(2), latents.shape(3)}, 0, test::world().size());
}

class Autoencoder : public ::testing::TestWithParam<const char*> {
 protected:
  // Those with reference results.
  std::vector<int> decoded_frames() const {
    return GetParam() == std::string("float32") ? std::vector{1, 2, 5}
           : GetParam() == std::string("ti2v")  ? std::vector{1, 3}
                                                : std::vector{3};
  }
  std::vector<int> encoded_frames() const {
    return GetParam() == std::string("float32") ? std::vector{1, 8, 17}
           : GetParam() == std::string("ti2v")  ? std::vector{1, 9}
                                                : std::vector{5};
  }
  Tensor decoded(const WanDecoder& decoder, const Tensor& latents, const Layout& cells,
                 std::int64_t chunk = 1) const {
    return decoded_frames_of(decoder, reference_.vae.pixels_per_latent(), latents, cells, chunk);
  }
  WanReference reference_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Kinds, Autoencoder, ::testing::Values("float32", "bfloat16", "ti2v"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Autoencoder, DecodesAsTheReference) {
  const WanDecoder decoder(reference_.weights("vae"), reference_.vae, DType::float32);
  for (const int frames : decoded_frames()) {
    const Tensor latents = reference_.get(fmt::format("decoder.latents_{}", frames));
    const Tensor expected = reference_.get(fmt::format("decoder.frames_{}", frames));
    const Tensor found = decoded(decoder, latents, rows_cut(latents));
    EXPECT_LT(relative_error(clamped(found), expected), 1e-5) << frames;
    // The bytes of the video are the same, within a level.
    const Layout cells = rows_cut(latents);
    const DecodeLayout layout{cells.with_axis(0, frames),
                              cells.with_axis(0, WanVaeConfig::decoded_frames(frames)),
                              cells.with_axis(0, WanVaeConfig::decoded_frames(frames))};
    const DecodedVideo video =
        decoder.pixels(spread(latents, layout.latents.with_axis(1, latents.shape(1))), layout);
    EXPECT_TRUE(video.finite);
    const Tensor bytes = gathered(video.pixels), exact = ops::to_pixels(expected);
    ASSERT_EQ(bytes.shape(), exact.shape());
    int largest = 0;
    for (std::int64_t i = 0; i < bytes.numel(); ++i) {
      largest = std::max(largest, std::abs(int(bytes.data<std::uint8_t>()[i]) -
                                           int(exact.data<std::uint8_t>()[i])));
    }
    EXPECT_LE(largest, 1) << frames;
  }
}

// Frames decode to the same bits one by one, in chunks, and all at once, on all cuts.
TEST_P(Autoencoder, DecodesToTheSameBitsInEveryChunkAndCut) {
  const int ranks = test::world().size();
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const WanDecoder decoder(reference_.weights("vae"), reference_.vae, dtype);
    const Tensor latents = random_tensor({5, reference_.vae.latent_channels, 5, 3}, 4);
    const Tensor one = decoded(decoder, latents, Layout::on_one_rank({5, 3}, ranks, 0));
    for (const std::int64_t chunk : {2, 3, 4}) {
      EXPECT_TRUE(same_bits(decoded(decoder, latents, rows_cut(latents), chunk), one)) << chunk;
    }
    EXPECT_TRUE(same_bits(decoded(decoder, latents, Layout::cut({5, 3}, 1, ranks)), one));
  }
}

// A frame does not depend on later ones.
TEST_P(Autoencoder, DecodesTheBeginningOfAClipAlone) {
  const WanDecoder decoder(reference_.weights("vae"), reference_.vae, DType::float32);
  const Tensor latents = random_tensor({4, reference_.vae.latent_channels, 2, 3}, 5);
  const Tensor all = decoded(decoder, latents, rows_cut(latents));
  for (const std::int64_t frames : {1, 3}) {
    const Tensor some = decoded(decoder, latents.rows(0, frames).clone(), rows_cut(latents));
    EXPECT_TRUE(same_bits(some, all.rows(0, some.shape(0)).clone())) << frames;
  }
}

TEST_P(Autoencoder, InBfloat16IsAsAccurateAsPyTorch) {
  const WanDecoder decoder(reference_.weights("vae"), reference_.vae, DType::bfloat16);
  for (const int frames : decoded_frames()) {
    const std::string name = fmt::format("decoder.frames_{}", frames);
    const Tensor latents = reference_.get(fmt::format("decoder.latents_{}", frames));
    const Tensor found = decoded(decoder, latents, rows_cut(latents));
    EXPECT_LT(rms_error(clamped(found), reference_.get(name)),
              1.5 * reference_.bfloat16_error(name))
        << frames;
  }
}

TEST_P(Autoencoder, EncodesAsTheReferenceOnEveryCut) {
  const int ranks = test::world().size();
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const WanEncoder encoder(reference_.weights("vae"), reference_.vae, dtype);
    for (const int frames : encoded_frames()) {
      const std::string name = fmt::format("encoder.moments_{}", frames);
      const Tensor pixels = reference_.bytes(fmt::format("encoder.pixels_{}", frames));
      const Tensor expected = reference_.get(name);
      const Shape latents{expected.shape(0), expected.shape(2), expected.shape(3)};
      ASSERT_EQ(encoder.latent_frames(frames), latents[0]);
      const Tensor noise =
          random_tensor({latents[0], reference_.vae.latent_channels, latents[1], latents[2]}, 6);
      const auto on = [&](const Layout& layout) {
        return test::encoded(encoder, pixels, layout, test::world(), 1, noise);
      };
      const test::Encoded rows = on(Layout::cut(latents, 1, ranks));
      if (dtype == DType::float32) {
        EXPECT_LT(relative_error(rows.moments, expected), 1e-5) << frames;
      } else {
        EXPECT_LT(rms_error(rows.moments, expected), 1.5 * reference_.bfloat16_error(name))
            << frames;
      }
      EXPECT_TRUE(same_bits(on(Layout::cut(latents, 2, ranks)), rows)) << frames;
      EXPECT_TRUE(same_bits(on(Layout::on_one_rank(latents, ranks, 0)), rows)) << frames;
      // Latents are those that the transformer takes: decoding divides by the same numbers.
      const std::int64_t area = latents[1] * latents[2], channels = noise.shape(1);
      for (std::int64_t i = 0; i < noise.numel(); ++i) {
        const auto c = std::size_t(i / area % channels);
        const float mean = rows.moments.data<
            float>()[(i / area / channels * 2 * channels + std::int64_t(c)) * area + i % area];
        EXPECT_NEAR(rows.mean.data<float>()[i],
                    (mean - reference_.vae.latents_mean[c]) / reference_.vae.latents_std[c], 1e-5);
      }
    }
  }
}

TEST(WanVaeConfig, RefusesWhatIsNotSupported) {
  const auto refuses = [](const char* key, const nlohmann::json& value, const char* said) {
    nlohmann::json config{{"z_dim", 1}, {"latents_mean", {0.5}}, {"latents_std", {2.0}}};
    WanVaeConfig::read(Config::parse(config.dump(), "config.json"));
    config[key] = value;
    test::expect_error(
        Status::data, [&] { WanVaeConfig::read(Config::parse(config.dump(), "config.json")); },
        said);
  };
  refuses("patch_size", 2, "in_channels is 3, expected 12");
  refuses("patch_size", 4, "patch_size");
  refuses("scale_factor_spatial", 16, "scale_factor_spatial is 16, expected 8");
  refuses("z_dim", 2, "latents_mean has 1 entries, expected 2 as z_dim says");
  refuses("latents_std", {0}, "latents_std has 0, expected numbers above 0");
  refuses("latents_mean", {"a"}, "expected an array of finite numbers");
  refuses("dim_mult", {1, 2}, "dim_mult has 2 entries, expected 4");
  refuses("temperal_downsample", {true, true, true}, "3 are true, expected 3 and 2");
  test::expect_error(
      Status::data,
      [&] {
        WanVaeConfig::read(
            Config::parse(R"({"is_residual": true, "dim_mult": [1, 2, 3, 4]})", "config.json"));
      },
      "a shortcut between 768 and 288 channels");
}

}  // namespace
}  // namespace reelmesh
