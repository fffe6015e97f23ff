#pragma once
// Images that users bring: PNG and JPEG files, as diffusers' load_image reads them with Pillow.
// Files are untrusted: limits are checked before memory is allocated.
#include <filesystem>
#include <string>

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

/// Reads the header of a JPEG file. Decodes all of a PNG file without keeping pixels, since its
/// orientation may follow them. where: begins messages ("prompt.image"). Throws Error(no_input) if
/// the file is missing, Error(io) if it cannot be opened or read, Error(data) naming the file if it
/// is of another type, too large, animated, CMYK, or what is read of it is damaged.
ImageSize image_size(const std::filesystem::path& file, const std::string& where);

/// Reads an image → uint8 [row, column, 3], RGB, on the host: the bytes of Pillow's
/// ImageOps.exif_transpose(image).convert("RGB"). Transparency is dropped. Throws as image_size,
/// and Error(data) for damaged or truncated data.
Tensor read_image(const std::filesystem::path& file, const std::string& where);

/// Resizes uint8 [row, column, 3] with the bytes of Pillow's resize((width, height), LANCZOS): an
/// 8-bit fixed-point kernel of 3 lobes, first each row to the new width, then each column to the
/// new height, rounded in between.
/// Returns the image itself if it has this size.
Tensor resize_lanczos(const Tensor& image, std::int64_t height, std::int64_t width);

}  // namespace reelmesh::media
