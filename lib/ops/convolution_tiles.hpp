#pragma once
// Tiles in which convolutions are computed: at fixed positions in the image, all of one shape
// except at its right and lower edges.
#include <algorithm>
#include <vector>

#include "ops/convolution.hpp"

namespace reelmesh::ops {

/// Pixels [begin, end) along one axis.
struct PixelSpan {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return std::max<std::int64_t>(0, end - begin); }
  bool holds(std::int64_t at) const { return at >= begin && at < end; }
};

PixelSpan common(const PixelSpan& a, const PixelSpan& b);
PixelSpan row_span(const ImageBox& box, std::int64_t enlarged = 1);
PixelSpan column_span(const ImageBox& box, std::int64_t enlarged = 1);

/// A tile: its first pixel, its extents within the image and the part to store, in pixels of the
/// result, and the input of that part, in pixels of the upsampled image.
struct ConvolutionTile {
  std::int64_t row = 0, column = 0;
  std::int64_t height = 0, width = 0;
  PixelSpan rows, columns;
  PixelSpan needed_rows, needed_columns;
};

/// The tiles of tile_rows × tile_columns pixels that Convolution::run with these arguments has to
/// compute. Throws Error(internal) if pixels that a tile needs are missing.
std::vector<ConvolutionTile> convolution_tiles(const Image& x, std::int64_t enlarged,
                                               const Window& window, const ImageBox& want,
                                               Tiles which, std::int64_t tile_rows,
                                               std::int64_t tile_columns);

}  // namespace reelmesh::ops
