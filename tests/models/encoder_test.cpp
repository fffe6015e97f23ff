// The encoder beside that of diffusers (tests/data/cogvideox/encoder).
#include "models/cogvideox/encoder.hpp"

#include "models/reference.hpp"
#include "support/encoding.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::Reference;
using reelmesh::test::relative_error;
using reelmesh::test::rms_error;
using reelmesh::test::same_bits;

class Encoder : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int frame_counts[] = {1, 9, 13, 16, 17};

  Encoder()
      : weights_(Checkpoint::open(reference_.folder / "vae", "diffusion_pytorch_model")),
        expected_(Checkpoint::open(folder() / "encoder", GetParam())),
        scale_(reference_.vae.inverts_scale ? 1 / reference_.vae.scaling_factor
                                            : reference_.vae.scaling_factor) {}

  std::filesystem::path folder() const { return reference_.folder.parent_path(); }
  Tensor get(const std::string& name, int frames) const {
    const std::string full = fmt::format("{}_{}", name, frames);
    return expected_.load(full, expected_.tensors().at(full).shape, DType::float32);
  }
  test::Encoded encoded(const CogVideoXEncoder& encoder, const Tensor& noise, int frames,
                        const Layout& cells) const {
    return test::encoded(encoder,
                         test::encoder_pixels(frames, 8 * noise.shape(2), 8 * noise.shape(3)),
                         cells, test::world(), scale_, noise);
  }
  static Layout cut(const Tensor& noise, std::size_t axis) {
    return Layout::cut({noise.shape(2), noise.shape(3)}, axis, test::world().size());
  }

  Reference reference_{GetParam()};
  Checkpoint weights_, expected_;
  double scale_;
};
INSTANTIATE_TEST_SUITE_P(CogVideoX, Encoder, ::testing::Values("sincos", "rotary", "v1_5"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Encoder, EqualsTheReferenceOnEveryLayout) {
  const CogVideoXEncoder encoder(weights_, reference_.vae, DType::float32);
  for (const int frames : frame_counts) {
    const Tensor noise = get("noise", frames);
    const test::Encoded rows = encoded(encoder, noise, frames, cut(noise, 0));
    EXPECT_LT(relative_error(rows.moments, get("moments", frames)), 1e-5) << frames << " frames";
    EXPECT_LT(relative_error(rows.sample, get("sample", frames)), 1e-5) << frames << " frames";
    const test::Encoded columns = encoded(encoder, noise, frames, cut(noise, 1));
    EXPECT_TRUE(same_bits(columns.moments, rows.moments)) << frames << " frames";
    EXPECT_TRUE(same_bits(columns.sample, rows.sample)) << frames << " frames";
  }
}

TEST_P(Encoder, InBfloat16IsAsAccurateAsPyTorch) {
  const auto errors =
      parse_json(read_text(folder() / "encoder" / "bf16_errors.json", 1 << 20), "bf16_errors.json");
  const auto of_pytorch = [&](const char* what, int frames) {
    return errors.at(GetParam()).at(what).at(std::to_string(frames)).at("rms").get<double>();
  };
  const CogVideoXEncoder encoder(weights_, reference_.vae, DType::bfloat16);
  for (const int frames : frame_counts) {
    const Tensor noise = get("noise", frames).to(DType::bfloat16).to(DType::float32);
    const test::Encoded mine = encoded(encoder, noise, frames, cut(noise, 0));
    EXPECT_LT(rms_error(mine.moments, get("moments", frames)), 1.5 * of_pytorch("moments", frames))
        << frames << " frames";
    EXPECT_LT(rms_error(mine.sample, get("sample", frames)), 1.5 * of_pytorch("sample", frames))
        << frames << " frames";
    EXPECT_TRUE(same_bits(mine.sample, mine.sample.to(DType::bfloat16).to(DType::float32)));
  }
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
