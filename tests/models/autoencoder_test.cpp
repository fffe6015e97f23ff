// Compares Open-Sora's autoencoders with Open-Sora's own code (tests/data/opensora, see its
// README), and checks that all layouts give the same bits.
#include <gmock/gmock.h>

#include "layout/relayout.hpp"
#include "models/autoencoder/decoder.hpp"
#include "models/autoencoder/encoder.hpp"
#include "models/common/asked.hpp"
#include "models/decode_layouts.hpp"
#include "ops/pointwise.hpp"
#include "support/expect_error.hpp"
#include "support/random_tensor.hpp"
#include "support/ranks.hpp"
#include "support/spread.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::gathered;
using reelmesh::test::opensora_decode_layout;
using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::rms_error;
using reelmesh::test::same_bits;
using reelmesh::test::spread;

struct AutoencoderReference {
  explicit AutoencoderReference(const char* kind)
      : folder(std::filesystem::path(REELMESH_TEST_DATA) / "opensora" / kind),
        results(Checkpoint::open(folder, "reference")),
        config(OpenSoraVaeConfig::read(Config::read(folder / "vae" / "config.json"))) {}
  Checkpoint weights() const { return Checkpoint::open(folder / "vae", "diffusion_pytorch_model"); }
  /// A stored result as float32, in its stored shape.
  Tensor get(const std::string& name) const {
    return results.load(name, results.tensors().at(name).shape, DType::float32);
  }
  std::filesystem::path folder;
  Checkpoint results;
  OpenSoraVaeConfig config;
};

// [a, b, row, column] → [b, a, row, column]; the reference has channels before frames.
Tensor swapped(const Tensor& x) {
  Tensor y = Tensor::empty({x.shape(1), x.shape(0), x.shape(2), x.shape(3)}, x.dtype());
  const std::int64_t pixels = x.shape(2) * x.shape(3);
  for (std::int64_t a = 0; a < x.shape(0); ++a) {
    for (std::int64_t b = 0; b < x.shape(1); ++b) {
      std::copy_n(x.data<float>() + (a * x.shape(1) + b) * pixels, pixels,
                  y.data<float>() + (b * x.shape(0) + a) * pixels);
    }
  }
  return y;
}

// Frames `indices` of a video [frame, row, column, channel] as [channel, frame, row, column].
Tensor channels_first(const Tensor& video, const std::vector<float>& indices) {
  const Tensor values = video.to(DType::float32);
  const auto frames = static_cast<std::int64_t>(indices.size());
  const std::int64_t pixels = video.shape(1) * video.shape(2), channels = video.shape(3);
  Tensor out = Tensor::empty({channels, frames, video.shape(1), video.shape(2)}, DType::float32);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const auto frame = static_cast<std::int64_t>(indices[std::size_t(i / pixels % frames)]);
    out.data<float>()[i] =
        values.data<float>()[(frame * pixels + i % pixels) * channels + i / (pixels * frames)];
  }
  return out;
}

// This rank's part of latents [frame, channel, row, column], distributed as the decoder expects.
Sharded sharded(const Tensor& latents, const DecodeLayout& layout) {
  return spread(latents, layout.latents.with_axis(1, latents.shape(1)));
}

// The video that a single rank decodes from the latents.
Tensor decoded_alone(const OpenSoraDecoder& decoder, const Tensor& latents,
                     const OpenSoraVaeConfig& config, std::int64_t frames) {
  const auto world = test::world();
  const DecodeLayout layout = opensora_decode_layout(config, latents.shape(), frames, 1);
  return decoder
      .video({latents, layout.latents.with_axis(1, latents.shape(1)), world.split(world.rank())},
             layout)
      .local;
}

std::vector<float> float_values(const Tensor& x) {
  return {x.span<float>().begin(), x.span<float>().end()};
}

class AutoencoderKinds : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(OpenSora, AutoencoderKinds, ::testing::Values("v1_0", "v1_2"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(AutoencoderKinds, CheckpointsHoldWhatTheConfigurationAsksFor) {
  const AutoencoderReference reference(GetParam());
  const Checkpoint weights = reference.weights();
  ExpectedShapes tensors = tensors_of<OpenSoraDecoder>(reference.config);
  tensors.merge(tensors_of<OpenSoraEncoder>(reference.config));
  const Difference difference = weights.compare(tensors);
  EXPECT_THAT(difference.missing, testing::IsEmpty());
  EXPECT_THAT(difference.unexpected, testing::IsEmpty());
  EXPECT_TRUE(difference.wrong_shapes.empty());
}

TEST(ImageAutoencoder, EqualsTheReferenceOnAllRanks) {
  const AutoencoderReference reference("v1_0");
  const OpenSoraDecoder decoder(reference.weights(), reference.config, DType::float32);
  const Tensor latents = swapped(reference.get("vae.latents"));
  const DecodeLayout layout = opensora_decode_layout(reference.config, latents.shape(),
                                                     latents.shape(0), test::world().size());
  const Tensor video = gathered(decoder.video(sharded(latents, layout), layout));
  EXPECT_LT(relative_error(channels_first(video, {0, 1}), reference.get("vae.decoded")), 2e-5);
}

// Two images, so that with three or more ranks some ranks share an image.
TEST(ImagePart, TakesStatisticsOfItsOwnImagesOnly) {
  const auto world = test::world();
  const Layout images = opensora_decode_layout({}, {2, 4, 6, 3}, 2, world.size()).images;
  const Tensor x = random_tensor({2, 6, 3, 8}, 3);
  const Sharded mine = spread(x, images.with_axis(3, 8));
  const std::optional<ImagePart> part = ImagePart::of(world, images);
  ASSERT_EQ(part.has_value(), !mine.local.empty());
  const comm::Group me = world.split(world.rank());
  for (std::int64_t i = 0; part && i < mine.local.shape(0); ++i) {
    const std::int64_t image = mine.box().offset[0] + i;
    const auto here = part->statistics(mine.local.rows(i, 1), 2, 1e-6);
    const auto whole =
        ImagePart::of(me, Layout::replicated({1, 6, 3}, 1))->statistics(x.rows(image, 1), 2, 1e-6);
    EXPECT_TRUE(test::same_bits(here.mean, whole.mean)) << image;
    EXPECT_TRUE(test::same_bits(here.rstd, whole.rstd)) << image;
  }
}

TEST(TemporalAutoencoder, EqualsTheReferenceByItself) {
  const AutoencoderReference reference("v1_2");
  const TemporalDecoder decoder(reference.weights(), *reference.config.temporal, DType::float32);
  // [channel, latent frame, row, column] → [latent frame, row, column, channel]
  const Tensor latents = reference.get("temporal.latents");
  const std::int64_t all = latents.numel() / latents.shape(0);
  Tensor x = Tensor::empty({5, 3, 5, 4}, DType::float32);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = latents.data<float>()[i % 4 * all + i / 4];
  }
  const auto world = test::world();
  const Layout pixels = Layout::cut({3, 5}, 0, world.size());
  const Layout cut = pixels.with_axis(0, 5).with_axis(3, 4);
  const Sharded mine = spread(x, cut);
  // With four ranks the last one has no rows.
  const std::optional<ImagePart> part = ImagePart::of(world, pixels.with_axis(0, 5));
  EXPECT_EQ(part.has_value(), !mine.local.empty());
  const Tensor frames =
      part ? decoder(*part, mine.local, 17) : Tensor::empty({17, 0, 5, 4}, DType::float32);
  const Tensor whole = gathered({frames, pixels.with_axis(0, 17).with_axis(3, 4), world});
  std::vector<float> indices;
  for (int i = 0; i < 17; ++i) indices.push_back(float(i));
  EXPECT_LT(relative_error(channels_first(whole, indices), reference.get("temporal.decoded")),
            2e-5);
}

TEST(VideoAutoencoder, EqualsTheReferenceForAnyNumberOfFrames) {
  const AutoencoderReference reference("v1_2");
  const int ranks = test::world().size();
  const OpenSoraDecoder decoder(reference.weights(), reference.config, DType::float32);
  for (const int frames : {1, 25, 26}) {
    const std::string name = "vae" + std::to_string(frames);
    const Tensor latents = swapped(reference.get(name + ".latents"));
    ASSERT_EQ(reference.config.latent_frames(frames), latents.shape(0));
    const DecodeLayout layout =
        opensora_decode_layout(reference.config, latents.shape(), frames, ranks);
    const Tensor video = gathered(decoder.video(sharded(latents, layout), layout));
    const auto indices = float_values(reference.get(name + ".frames"));
    EXPECT_LT(relative_error(channels_first(video, indices), reference.get(name + ".decoded")),
              2e-5)
        << frames;
  }
}

TEST_P(AutoencoderKinds, BFloat16IsAsAccurateAsOpenSora) {
  const AutoencoderReference reference(GetParam());
  const auto errors = parse_json(
      read_text(reference.folder.parent_path() / "bf16_errors.json", 1 << 20), "bf16_errors.json");
  const std::string name = reference.config.temporal ? "vae26" : "vae";
  const std::int64_t frames = reference.config.temporal ? 26 : 2;
  const Tensor latents = swapped(reference.get(name + ".latents"));
  const OpenSoraDecoder decoder(reference.weights(), reference.config, DType::bfloat16);
  const DecodeLayout layout =
      opensora_decode_layout(reference.config, latents.shape(), frames, test::world().size());
  const Tensor video = gathered(decoder.video(sharded(latents, layout), layout));
  const auto indices = reference.config.temporal ? float_values(reference.get(name + ".frames"))
                                                 : std::vector<float>{0, 1};
  EXPECT_LT(rms_error(channels_first(video, indices), reference.get(name + ".decoded")),
            1.5 * errors.at(GetParam()).at("vae").at("rms").get<double>());
}

// The whole clip as bytes. Open-Sora rounds halves up, reelmesh to even: they may differ by one.
TEST_P(AutoencoderKinds, PixelsAreThoseThatOpenSoraSaves) {
  const AutoencoderReference reference(GetParam());
  const int ranks = test::world().size();
  const std::int64_t frames = reference.config.temporal ? 51 : 16;
  const Tensor latents = swapped(reference.get("clip0.latents"));
  const auto indices = float_values(reference.get("clip0.video_frames"));
  const Tensor expected = reference.get("clip0.video");
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const OpenSoraDecoder decoder(reference.weights(), reference.config, dtype);
    const DecodeLayout layout =
        opensora_decode_layout(reference.config, latents.shape(), frames, ranks);
    const Tensor video = gathered(decoder.pixels(sharded(latents, layout), layout).pixels);
    ASSERT_EQ(video.shape(), (Shape{frames, expected.shape(1), expected.shape(2), 3}));
    int largest = 0, differ = 0;
    double sum = 0;
    for (std::size_t f = 0; f < indices.size(); ++f) {
      const Tensor mine = video.rows(std::int64_t(indices[f]), 1);
      const Tensor theirs = expected.rows(std::int64_t(f), 1);
      for (std::int64_t i = 0; i < mine.numel(); ++i) {
        const int difference =
            std::abs(int(mine.data<std::uint8_t>()[i]) - int(theirs.data<float>()[i]));
        largest = std::max(largest, difference);
        differ += difference > 0;
        sum += difference;
      }
    }
    if (dtype == DType::float32) {
      EXPECT_LE(largest, 1);
      EXPECT_LT(differ, expected.numel() / 1000);
    } else {
      EXPECT_LT(sum / double(expected.numel()), 2.0) << "largest " << largest;
    }
  }
}

TEST_P(AutoencoderKinds, EveryRankGivesTheBitsThatItWouldGiveAlone) {
  const AutoencoderReference reference(GetParam());
  const int ranks = test::world().size();
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const OpenSoraDecoder decoder(reference.weights(), reference.config, dtype);
    // One image (rows are cut), fewer and more items than ranks, and an incomplete group of frames.
    for (const std::int64_t frames : reference.config.temporal
                                         ? std::vector<std::int64_t>{1, 17, 26, 51}
                                         : std::vector<std::int64_t>{1, 2, 3, 5}) {
      const Tensor latents =
          random_tensor({reference.config.latent_frames(frames), 4, 5, 3}, unsigned(frames));
      const DecodeLayout layout =
          opensora_decode_layout(reference.config, latents.shape(), frames, ranks);
      const Tensor spread_out = gathered(decoder.video(sharded(latents, layout), layout));
      const Tensor single_rank = decoded_alone(decoder, latents, reference.config, frames);
      EXPECT_TRUE(same_bits(spread_out, single_rank)) << frames << " frames, " << name_of(dtype);
    }
  }
}

// Parts in proportion to random rank weights; some are so small that the part is empty.
TEST_P(AutoencoderKinds, RanksOfAnyWeightsGiveTheBitsOfOne) {
  const AutoencoderReference reference(GetParam());
  const int ranks = test::world().size();
  std::mt19937 random(3);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const OpenSoraDecoder decoder(reference.weights(), reference.config, dtype);
    for (const std::int64_t frames : {1, 5, 26}) {
      RankWeights weights;
      for (int r = 0; r < ranks; ++r) weights.push_back(std::pow(2.0, double(random() % 6)));
      const Tensor latents =
          random_tensor({reference.config.latent_frames(frames), 4, 7, 3}, unsigned(frames));
      const DecodeLayout layout =
          opensora_decode_layout(reference.config, latents.shape(), frames, ranks, weights);
      const Tensor spread_out = gathered(decoder.video(sharded(latents, layout), layout));
      const Tensor single_rank = decoded_alone(decoder, latents, reference.config, frames);
      EXPECT_TRUE(same_bits(spread_out, single_rank))
          << frames << " frames, " << name_of(dtype) << ", " << to_string(layout.images);
    }
  }
}

TEST(OpenSoraVaeConfig, CountsFramesOfLatents) {
  OpenSoraVaeConfig config;
  EXPECT_EQ(config.latent_frames(16), 16);
  config.temporal.emplace();
  for (const auto& [frames, latents] :
       std::vector<std::pair<int, int>>{{1, 1}, {17, 5}, {20, 6}, {51, 15}, {26, 8}, {102, 30}}) {
    EXPECT_EQ(config.latent_frames(frames), latents) << frames;
  }
}

TEST(OpenSoraVaeConfig, CountsTheReleasedParameters) {
  const auto parameters = [](const ExpectedShapes& shapes) {
    std::int64_t sum = 0;
    for (const auto& [name, shape] : shapes) sum += numel(shape);
    return sum;
  };
  OpenSoraVaeConfig config;
  config.image.block_channels = {128, 256, 512, 512};
  config.image.layers_per_block = 2;
  EXPECT_EQ(parameters(tensors_of<OpenSoraDecoder>(config)), 49'490'199);
  EXPECT_EQ(parameters(tensors_of<OpenSoraEncoder>(config)), 83'653'863 - 49'490'199);
  EXPECT_EQ(tensors_of<OpenSoraDecoder>(config).size(), 140U);
  config.temporal.emplace();  // and its scale and shift, 4 values each
  EXPECT_EQ(parameters(tensors_of<OpenSoraDecoder>(config)), 49'490'199 + 165'265'944 + 8);
  EXPECT_EQ(parameters(tensors_of<OpenSoraEncoder>(config)),
            83'653'863 - 49'490'199 + 309'687'144 - 165'265'944 + 8);
}

TEST(OpenSoraVaeConfig, RejectsUnsupportedConfigurations) {
  const auto read = [](const char* text) {
    return [text] { OpenSoraVaeConfig::read(Config::parse(text, "vae/config.json")); };
  };
  const auto expect_data = [&](const char* text, const char* word) {
    reelmesh::test::expect_error(Status::data, read(text), word);
  };
  expect_data(R"({"_class_name": "AutoencoderTiny"})", "AutoencoderTiny");
  expect_data(R"({"_class_name": "AutoencoderKL", "act_fn": "gelu"})", "act_fn");
  expect_data(R"({"_class_name": "AutoencoderKL", "block_out_channels": [30]})", "groups");
  expect_data(R"({"_class_name": "AutoencoderKL", "block_out_channels": []})", "0 entries");
  expect_data(R"({"_class_name": "AutoencoderKL",
                  "up_block_types": ["AttnUpDecoderBlock2D"]})",
              "up_block_types");
  expect_data(R"({"_class_name": "OpenSoraVAE_V1_2", "vae_2d": 3})", "vae_2d");
  expect_data(R"({"_class_name": "OpenSoraVAE_V1_2",
                  "vae_temporal": {"temporal_downsample": [true]}})",
              "temporal_downsample");
  expect_data(R"({"_class_name": "OpenSoraVAE_V1_2", "vae_2d": {"latent_channels": 8}})",
              "latent_channels");
  EXPECT_NO_THROW(read(R"({"model_type": "VideoAutoencoderPipeline",
                           "vae_2d": {"type": "VideoAutoencoderKL"}})")());
}

}  // namespace
}  // namespace reelmesh
