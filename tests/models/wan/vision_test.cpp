// CLIP's vision encoder beside transformers' CLIPVisionModel and CLIPImageProcessor.
#include "models/clip/vision.hpp"

#include "job/inputs.hpp"
#include "models/wan/reference.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::relative_error;
using reelmesh::test::rms_error;
using reelmesh::test::same_bits;

struct Vision {
  test::WanReference reference{"image"};
  VisionPixels pixels = read_vision_pixels(
      Config::read(reference.folder / "image_processor/preprocessor_config.json"));
  ClipVisionConfig config =
      ClipVisionConfig::read(Config::read(reference.folder / "image_encoder/config.json"));

  Tensor rows(const std::string& image, DType dtype) const {
    const ClipVision encoder(Checkpoint::open(reference.folder / "image_encoder", "model"), config,
                             dtype);
    return encoder.embed(reference.get(image + ".pixels")).to(DType::float32);
  }
};

const std::array images{"first.png", "last.png"};  // wide and high

TEST(ClipVision, PixelsAreThoseOfTheReference) {
  const Vision vision;
  for (const char* image : images) {
    const InputFile file{InputKind::image, vision.reference.folder / image, "prompt.image"};
    const Tensor found = read_vision_pixels(file, check_input(file), vision.pixels);
    EXPECT_TRUE(same_bits(found, vision.reference.get(std::string(image) + ".pixels"))) << image;
  }
}

TEST(ClipVision, RowsAreThoseOfTheReference) {
  const Vision vision;
  for (const std::string image : images) {
    const Tensor expected = vision.reference.get(image + ".rows");
    EXPECT_LT(relative_error(vision.rows(image, DType::float32), expected), 1e-5) << image;
    EXPECT_LT(rms_error(vision.rows(image, DType::bfloat16), expected),
              1.5 * vision.reference.bfloat16_error(image + ".rows"))
        << image;
  }
}

TEST(ClipVision, RefusesOtherConfigurations) {
  const auto encoder = [](const std::string& more) {
    ClipVisionConfig::read(Config::parse("{\"hidden_act\": \"gelu\"" + more + "}", "config.json"));
  };
  encoder("");
  test::expect_error(
      Status::data, [&] { encoder(", \"architectures\": [\"SiglipVisionModel\"]"); },
      "the class is SiglipVisionModel, expected CLIPVisionModel");
  test::expect_error(
      Status::data, [] { ClipVisionConfig::read(Config::parse("{}", "config.json")); },
      "config.json: hidden_act is quick_gelu, expected gelu");
  test::expect_error(
      Status::data, [&] { encoder(", \"num_attention_heads\": 7"); },
      "hidden_size is 768, expected a multiple of 7, num_attention_heads");
  test::expect_error(
      Status::data, [&] { encoder(", \"patch_size\": 15"); },
      "image_size is 224, expected a multiple of 15, patch_size");
  const auto processor = [](const std::string& text) {
    return read_vision_pixels(Config::parse("{" + text + "}", "preprocessor_config.json"));
  };
  EXPECT_EQ(processor("").size, 224);
  EXPECT_EQ(processor("\"image_mean\": [0.5, 0.5, 0.5]").mean[1], 0.5F);
  test::expect_error(
      Status::data, [&] { processor("\"do_center_crop\": false"); },
      "preprocessor_config.json: do_center_crop is false, expected true");
  test::expect_error(
      Status::data, [&] { processor("\"resample\": 2"); }, "resample is 2, expected 3");
  test::expect_error(
      Status::data, [&] { processor("\"crop_size\": {\"height\": 9, \"width\": 8}"); },
      "crop_size has another width than height, expected a square");
  test::expect_error(
      Status::data, [&] { processor("\"crop_size\": {\"height\": 336, \"width\": 336}"); },
      "crop_size is 336, expected at most 224, the shortest_edge of size");
  test::expect_error(
      Status::data, [&] { processor("\"image_std\": [1, 0, 1]"); },
      "image_std has 0, expected numbers above 0");
}

}  // namespace
}  // namespace reelmesh
