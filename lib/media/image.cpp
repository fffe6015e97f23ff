#include "media/image.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/file_kind.hpp"
#include "base/units.hpp"
#include "media/decoders.hpp"
#include "media/orientation.hpp"

namespace reelmesh::media {
namespace {

constexpr std::int64_t max_image_bytes = std::int64_t{1} << 30;

// The format is found by the first bytes; the file's name does not matter.
ImageHeader decode(InputFile file, Tensor* pixels) {
  const std::string begin = read_bytes(file, file_kind_bytes);
  std::rewind(file.stream.get());
  switch (file_kind(begin)) {
    case FileKind::png:
      return decode_png(file, pixels);
    case FileKind::jpeg:
      return decode_jpeg(file, pixels);
    case FileKind::webp:
    case FileKind::gif:
    case FileKind::bmp:
    case FileKind::tiff:
    case FileKind::avif:
      return decode_with_libav(std::move(file), pixels);
    default:
      break;
  }
  fail(Status::data,
       "{}: not an image that is read, expected PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF{}",
       file.name, what_it_is(begin));
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
  const auto [stored, orientation] = decode(open_input(file, where, max_image_bytes), nullptr);
  if (exchanges_sides(orientation)) return {.height = stored.width, .width = stored.height};
  return stored;
}

Tensor read_image(const std::filesystem::path& file, const std::string& where) {
  Tensor pixels;
  const ImageHeader header = decode(open_input(file, where, max_image_bytes), &pixels);
  return turned(pixels, header.orientation);
}

}  // namespace reelmesh::media
