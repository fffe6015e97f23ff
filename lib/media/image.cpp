#include "media/image.hpp"

#include <string_view>

#include "base/error.hpp"
#include "base/file_kind.hpp"
#include "base/units.hpp"
#include "media/decoders.hpp"
#include "media/orientation.hpp"

namespace reelmesh::media {
namespace {

constexpr std::int64_t max_image_bytes = std::int64_t{1} << 30;

using Decode = ImageHeader (*)(const InputFile& file, Tensor* pixels);

// The format is found by the first bytes; the file's name does not matter.
Decode find_decoder(const InputFile& file) {
  using namespace std::string_view_literals;
  const std::string begin = read_bytes(file, file_kind_bytes);
  std::rewind(file.stream.get());
  const auto starts = [&](std::string_view bytes) { return begin.starts_with(bytes); };
  if (starts("\x89PNG\r\n\x1a\n"sv)) return decode_png;
  if (starts("\xff\xd8\xff"sv)) return decode_jpeg;
  fail(Status::data, "{}: not a PNG or JPEG file{}", file.name, what_it_is(begin));
}

}  // namespace

void check_size(const InputFile& file, ImageSize size, std::int64_t min_bytes) {
  const auto [height, width] = size;
  require(height > 0 && width > 0, Status::data, "{}: the image has {} x {} pixels", file.name,
          width, height);
  require(height <= max_image_side && width <= max_image_side && height * width <= max_image_pixels,
          Status::data,
          "{}: the image has {} x {} pixels, expected at most {} a side and {} in all", file.name,
          width, height, max_image_side, max_image_pixels);
  require(file.bytes >= min_bytes, Status::data,
          "{}: {} cannot hold an image of {} x {} pixels: the file is truncated or damaged",
          file.name, format_bytes(static_cast<double>(file.bytes)), width, height);
}

ImageSize image_size(const std::filesystem::path& file, const std::string& where) {
  const InputFile input = open_input(file, where, max_image_bytes);
  const auto [stored, orientation] = find_decoder(input)(input, nullptr);
  if (exchanges_sides(orientation)) return {.height = stored.width, .width = stored.height};
  return stored;
}

Tensor read_image(const std::filesystem::path& file, const std::string& where) {
  const InputFile input = open_input(file, where, max_image_bytes);
  Tensor pixels;
  const ImageHeader header = find_decoder(input)(input, &pixels);
  return turned(pixels, header.orientation);
}

}  // namespace reelmesh::media
