#pragma once
// How an image is to be turned before it is shown, as cameras record it.
#include <string_view>

#include "tensor/tensor.hpp"

namespace reelmesh::media {

/// The orientation, 1…8, as Pillow's getexif() finds it: the tag in `exif` (a TIFF structure, with
/// or without "Exif\0\0" in front), else tiff:Orientation in `xmp`. 1, upright, if there is none or
/// the data is damaged.
int image_orientation(std::string_view exif, std::string_view xmp);

/// Whether an image of this orientation is shown with rows and columns exchanged.
constexpr bool exchanges_sides(int orientation) { return orientation >= 5; }

/// uint8 [row, column, 3] as stored → as shown; the same tensor for orientation 1.
Tensor turned(const Tensor& stored, int orientation);

}  // namespace reelmesh::media
