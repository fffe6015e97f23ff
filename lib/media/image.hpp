#pragma once
// Images that users bring: PNG and JPEG files, as diffusers' load_image reads them with Pillow, and
// WebP, GIF (the first frame), BMP, TIFF (the first page) and AVIF by FFmpeg's libraries.
// Files are untrusted: limits are checked before memory is allocated.
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "tensor/tensor.hpp"

namespace reelmesh::media {

/// Pixels of an image as it is shown, with the orientation of its EXIF data.
struct ImageSize {
  std::int64_t height = 0, width = 0;
};

/// The largest image that is read; Pillow refuses more as a decompression bomb.
constexpr std::int64_t max_image_pixels = 178'956'970;
/// The longest side, which is also that of the JPEG format.
constexpr std::int64_t max_image_side = 65'535;

/// Of names of image files, in lower case.
constexpr std::array<std::string_view, 9> image_extensions{
    ".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tiff", ".tif", ".avif", ".jpe"};

/// Reads the header of a JPEG file. Decodes all of other files without keeping pixels, since the
/// orientation may follow them. where: begins messages ("prompt.image"). Throws Error(no_input) if
/// the file is missing, Error(io) if it cannot be opened or read, Error(data) naming the file if it
/// is of another type, too large, an animated PNG or WebP file, or what is read of it is damaged.
ImageSize image_size(const std::filesystem::path& file, const std::string& where);

/// Reads an image → uint8 [row, column, 3], RGB, on the host: the bytes of Pillow's
/// ImageOps.exif_transpose(image).convert("RGB"), but for WebP with losses, AVIF, and transparent
/// pixels of GIF. Transparency is dropped. Throws as image_size, and Error(data) for damaged or
/// truncated data.
Tensor read_image(const std::filesystem::path& file, const std::string& where);

/// Resizes uint8 [row, column, 3] with the bytes of Pillow's resize((width, height), LANCZOS): an
/// 8-bit fixed-point kernel of 3 lobes, first each row to the new width, then each column to the
/// new height, rounded in between.
/// Returns the image itself if it has this size.
Tensor resize_lanczos(const Tensor& image, std::int64_t height, std::int64_t width);
/// The same with BICUBIC, a kernel of a = −1/2.
Tensor resize_bicubic(const Tensor& image, std::int64_t height, std::int64_t width);

}  // namespace reelmesh::media
