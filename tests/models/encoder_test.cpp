// The encoders beside those of diffusers and Open-Sora (tests/data/FAMILY/encoder).
#include "support/encoding.hpp"
#include "support/expect_error.hpp"
#include "support/long.hpp"
#include "support/random_tensor.hpp"
#include "support/ranks.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::relative_error;
using reelmesh::test::rms_error;
using reelmesh::test::same_bits;

struct Case : test::EncoderKind {
  std::vector<int> frame_counts;
};

class Encoder : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (test::world().size() > 1 || test::tests_are_long()) return;
    GTEST_SKIP() << "only in tests/long; decoder/ compares the bits of one rank with several";
  }
  std::filesystem::path folder() const {
    return test::data_folder() / GetParam().family / "encoder";
  }
  Tensor get(const std::string& name, int frames) const {
    const std::string full = fmt::format("{}_{}", name, frames);
    return expected_.load(full, expected_.tensors().at(full).shape, DType::float32);
  }
  static test::Encoded encoded(const test::OpenedEncoder& opened, const Tensor& noise, int frames,
                               std::size_t axis) {
    const Shape& shape = noise.shape();
    return test::encoded(*opened.encoder, test::encoder_pixels(frames, 8 * shape[2], 8 * shape[3]),
                         Layout::cut({shape[0], shape[2], shape[3]}, axis, test::world().size()),
                         test::world(), opened.scale, noise);
  }

  Checkpoint expected_ = Checkpoint::open(folder(), GetParam().kind);
};
INSTANTIATE_TEST_SUITE_P(Of, Encoder,
                         ::testing::Values(Case{{"cogvideox", "sincos"}, {1, 9, 13, 16, 17}},
                                           Case{{"cogvideox", "rotary"}, {1, 9, 13, 16, 17}},
                                           Case{{"cogvideox", "v1_5"}, {1, 9, 13, 16, 17}},
                                           Case{{"opensora", "v1_0"}, {1, 3}},
                                           Case{{"opensora", "v1_2"}, {1, 8, 17, 22}}),
                         [](const auto& row) { return row.param.name(); });

TEST_P(Encoder, EqualsTheReferenceOnEveryLayout) {
  const test::OpenedEncoder opened = open_encoder(GetParam(), DType::float32);
  for (const int frames : GetParam().frame_counts) {
    const Tensor noise = get("noise", frames);
    ASSERT_EQ(opened.encoder->latent_frames(frames), noise.shape(0));
    const test::Encoded rows = encoded(opened, noise, frames, 1);
    EXPECT_LT(relative_error(rows.moments, get("moments", frames)), 1e-5) << frames << " frames";
    EXPECT_LT(relative_error(rows.sample, get("sample", frames)), 1e-5) << frames << " frames";
    EXPECT_TRUE(same_bits(encoded(opened, noise, frames, 2), rows)) << frames << " frames";
  }
}

// Pixels of other values than those of uint8 can be encoded, too.
TEST_P(Encoder, TakesPixelsOfFloat32) {
  const test::OpenedEncoder opened = open_encoder(GetParam(), DType::float32);
  const Tensor noise = get("noise", 1);
  const Shape& shape = noise.shape();
  const Tensor pixels = test::encoder_pixels(1, 8 * shape[2], 8 * shape[3]);
  const Layout rows = Layout::cut({shape[0], shape[2], shape[3]}, 1, test::world().size());
  EXPECT_TRUE(same_bits(test::encoded(*opened.encoder, scaled_pixels(pixels, DType::float32), rows,
                                      test::world(), opened.scale, noise),
                        encoded(opened, noise, 1, 1)));
}

TEST_P(Encoder, GivesThePosteriorOfItsSamples) {
  const test::OpenedEncoder opened = open_encoder(GetParam(), DType::float32);
  const int frames = GetParam().frame_counts.back();
  const Tensor noise = get("noise", frames);
  const test::Encoded mine = encoded(opened, noise, frames, 1);
  Tensor drawn = Tensor::empty(noise.shape(), DType::float32);
  for (std::int64_t i = 0; i < noise.numel(); ++i) {
    drawn.data<float>()[i] =
        float(opened.scale) *
        (mine.mean.data<float>()[i] + mine.deviation.data<float>()[i] * noise.data<float>()[i]);
  }
  EXPECT_LT(relative_error(drawn, get("sample", frames)), 1e-5);
}

TEST_P(Encoder, InBfloat16IsAsAccurateAsPyTorch) {
  const auto errors =
      parse_json(read_text(folder() / "bf16_errors.json", 1 << 20), "bf16_errors.json");
  const auto of_pytorch = [&](const char* what, int frames) {
    return errors.at(GetParam().kind).at(what).at(std::to_string(frames)).at("rms").get<double>();
  };
  const test::OpenedEncoder opened = open_encoder(GetParam(), DType::bfloat16);
  for (const int frames : GetParam().frame_counts) {
    const Tensor noise = get("noise", frames).to(DType::bfloat16).to(DType::float32);
    const test::Encoded mine = encoded(opened, noise, frames, 1);
    EXPECT_LT(rms_error(mine.moments, get("moments", frames)), 1.5 * of_pytorch("moments", frames))
        << frames << " frames";
    EXPECT_LT(rms_error(mine.sample, get("sample", frames)), 1.5 * of_pytorch("sample", frames))
        << frames << " frames";
    EXPECT_TRUE(same_bits(mine.sample, mine.sample.to(DType::bfloat16).to(DType::float32)));
  }
}

TEST(Encoding, DividesFramesBetweenGroupsOnly) {
  const auto frames_of = [](const char* kind, std::vector<std::int64_t> cuts, std::int64_t frames) {
    const test::OpenedEncoder opened = test::open_encoder({"opensora", kind}, DType::float32);
    std::vector<Box> boxes;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      boxes.push_back({{cuts[i], 0, 0}, {cuts[i + 1] - cuts[i], 2, 3}});
    }
    std::vector<std::int64_t> found;
    const Layout latents({cuts.back(), 2, 3}, boxes);
    const Layout layout = opened.encoder->frames_of(latents, frames);
    EXPECT_EQ(layout.global(), (Shape{frames, 2, 3}));
    for (int r = 0; r < layout.ranks(); ++r) found.push_back(layout.box(r).end(0));
    return found;
  };
  using Ends = std::vector<std::int64_t>;
  EXPECT_EQ(frames_of("v1_0", {0, 3, 4, 9}, 9), (Ends{3, 4, 9}));
  EXPECT_EQ(frames_of("v1_2", {0, 5, 15}, 51), (Ends{17, 51}));
  EXPECT_EQ(frames_of("v1_2", {0, 10, 12}, 42), (Ends{34, 42}));
  EXPECT_EQ(frames_of("v1_2", {0, 2}, 8), (Ends{8}));
  test::expect_error(
      Status::internal,
      [&] {
        frames_of("v1_2", {0, 4, 10}, 34);
      },
      "within a group of 5");
}

TEST(Encoding, BatchesFramesAsTheReference) {
  using Batches = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(encode_batches(1), (Batches{{0, 1}}));
  EXPECT_EQ(encode_batches(5), (Batches{{0, 5}}));
  EXPECT_EQ(encode_batches(13), (Batches{{0, 13}}));
  EXPECT_EQ(encode_batches(16), (Batches{{0, 8}, {8, 8}}));
  EXPECT_EQ(encode_batches(25), (Batches{{0, 9}, {9, 8}, {17, 8}}));
  for (const auto& [frames, latent_frames] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                              {2, 1},
                                              {9, 3},
                                              {10, 3},
                                              {13, 4},
                                              {15, 4},
                                              {16, 4},
                                              {17, 5},
                                              {49, 13},
                                              {81, 21}}) {
    EXPECT_EQ(encoded_frames(frames), latent_frames) << frames;
  }
}

}  // namespace
}  // namespace reelmesh
