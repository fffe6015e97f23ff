#pragma once
// Decoders of one image format each, called by image.cpp.
#include "media/image.hpp"
#include "media/input_file.hpp"

namespace reelmesh::media {

/// What a file says about its pixels.
struct ImageHeader {
  ImageSize stored;     ///< before it is turned
  int orientation = 1;  ///< 1…8, as in EXIF
};

/// Throws Error(data) unless an image of this size may be read. min_bytes: the shortest file that
/// can hold it.
void check_size(const InputFile& file, ImageSize size, std::int64_t min_bytes);

// Read a file from its beginning, the pixels too unless `pixels` is null → uint8 [row, column, 3].
// Throw Error(data) as read_image.
ImageHeader decode_png(const InputFile& file, Tensor* pixels);
ImageHeader decode_jpeg(const InputFile& file, Tensor* pixels);
/// The first frame of a GIF, WebP, BMP, TIFF or AVIF file.
ImageHeader decode_with_libav(InputFile file, Tensor* pixels);

}  // namespace reelmesh::media
