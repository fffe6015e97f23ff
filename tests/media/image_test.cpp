// Images of all kinds are compared with Pillow in images_test.py and bad_media_test.py.
#include "media/image.hpp"

#include "media/orientation.hpp"
#include "media/ppm.hpp"
#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh::media {
namespace {

using test::expect_error;

class Images : public testing::TestWithParam<const char*> {};

TEST_P(Images, HaveThePixelsOfPillow) {
  const std::filesystem::path file = test::media_file(GetParam());
  const Tensor expected = test::read_ppm(file).at(0);
  const Tensor found = read_image(file, "image");
  ASSERT_EQ(found.shape(), expected.shape());
  EXPECT_EQ(test::differences(found, expected), 0);
  const ImageSize size = image_size(file, "image");
  EXPECT_EQ((Shape{size.height, size.width, 3}), expected.shape());
}

INSTANTIATE_TEST_SUITE_P(Files, Images,
                         testing::Values("grey.jpg", "progressive.jpg", "turned.jpg", "palette.png",
                                         "grey_16_bits.png", "interlaced_rgba.png", "late_exif.png",
                                         "xmp.png"));

TEST(Resize, HasTheBytesOfPillow) {
  const std::filesystem::path file = test::media_file("turned.jpg");
  const Tensor image = read_image(file, "image");
  for (const auto& [width, height] : {std::pair{48, 32}, {13, 40}, {7, 5}, {29, 9}}) {
    for (const auto& [resize, name] : {std::pair{&resize_lanczos, std::string()},
                                       std::pair{&resize_bicubic, std::string(".bicubic")}}) {
      const Tensor found = resize(image, height, width);
      const Tensor expected =
          test::read_ppm(fmt::format("{}.{}x{}{}", file.string(), width, height, name))[0];
      ASSERT_EQ(found.shape(), expected.shape());
      EXPECT_EQ(test::differences(found, expected), 0) << width << " x " << height << name;
    }
  }
}

TEST(Resize, KeepsAnImageOfThisSize) {
  const Tensor image = read_image(test::media_file("turned.jpg"), "image");
  EXPECT_EQ(resize_lanczos(image, image.shape(0), image.shape(1)).raw(), image.raw());
}

TEST(Resize, RefusesShapesThatAreNoImage) {
  expect_error(Status::internal, [] { resize_lanczos(Tensor::zeros({4, 4}, DType::uint8), 2, 2); });
  expect_error(Status::internal, [] {
    resize_lanczos(Tensor::zeros({4, 4, 3}, DType::uint8), 0, 2);
  });
}

TEST(Orientation, IsReadFromExifThenXmp) {
  const std::string_view exif("II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0", 26);
  EXPECT_EQ(image_orientation(exif, ""), 6);
  EXPECT_EQ(image_orientation(exif, "tiff:Orientation=\"3\""), 6);
  EXPECT_EQ(image_orientation("", "tiff:Orientation=\"3\""), 3);
  EXPECT_EQ(image_orientation("", "tiff:Orientation tiff:Orientation>8<"), 8);
  EXPECT_EQ(image_orientation("", "tiff:Orientation=\"9\""), 1);
  for (std::size_t bytes = 0; bytes < 22; ++bytes) {
    EXPECT_EQ(image_orientation(exif.substr(0, bytes), ""), 1) << bytes;
  }
}

TEST(Orientation, TurnsRowsAndColumns) {
  Tensor image = Tensor::zeros({2, 3, 3}, DType::uint8);  // red: 0 1 2 / 3 4 5
  for (std::uint8_t i = 0; i < 6; ++i) image.data<std::uint8_t>()[3 * i] = i;
  const std::vector<std::vector<int>> expected{
      {0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0}, {3, 4, 5, 0, 1, 2},
      {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2}, {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Tensor shown = turned(image, orientation);
    EXPECT_EQ(shown.shape(0), exchanges_sides(orientation) ? 3 : 2);
    std::vector<int> red;
    for (std::int64_t i = 0; i < 6; ++i) red.push_back(shown.data<std::uint8_t>()[3 * i]);
    EXPECT_EQ(red, expected[static_cast<std::size_t>(orientation - 1)]) << orientation;
  }
}

TEST(BadImages, NameTheFileAndWhatIsWrong) {
  const test::TempFolder folder;
  expect_error(
      Status::no_input, [&] { image_size(folder / "none.png", "prompt.image"); },
      "prompt.image: ", "none.png: cannot be opened: No such file");
  expect_error(
      Status::data, [&] { image_size(folder.path(), "prompt.image"); },
      folder.path().string() + ": not a regular file");
  const std::string whole = test::read_file(test::media_file("xmp.png"));
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    test::write_file(folder / "cut.png", whole.substr(0, bytes));
    expect_error(
        Status::data, [&] { read_image(folder / "cut.png", "prompt.image"); },
        "prompt.image: " + (folder / "cut.png").string());
    expect_error(
        Status::data, [&] { image_size(folder / "cut.png", "prompt.image"); }, "cut.png");
  }
}

TEST(BadImages, MayBeTruncatedAnywhere) {
  const test::TempFolder folder;
  const std::string whole = test::read_file(test::media_file("turned.jpg"));
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 13) {
    test::write_file(folder / "cut.jpg", whole.substr(0, bytes));
    expect_error(
        Status::data, [&] { read_image(folder / "cut.jpg", "prompt.image"); }, "cut.jpg");
  }
}

}  // namespace
}  // namespace reelmesh::media
