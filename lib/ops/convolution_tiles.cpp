#include "ops/convolution_tiles.hpp"

namespace reelmesh::ops {
namespace {

// The input of a span of the result, clipped to the image.
PixelSpan input_of(const PixelSpan& span, const Window& window, std::int64_t extent) {
  const std::int64_t first = span.begin * window.stride - window.before;
  return common({first, first + window.reach(span.count())}, {0, extent});
}

}  // namespace

PixelSpan common(const PixelSpan& a, const PixelSpan& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

PixelSpan rows_of(const ImageBox& box, std::int64_t enlarged) {
  return {box.row * enlarged, (box.row + box.rows) * enlarged};
}

PixelSpan columns_of(const ImageBox& box, std::int64_t enlarged) {
  return {box.column * enlarged, (box.column + box.columns) * enlarged};
}

std::vector<ConvolutionTile> convolution_tiles(const Image& x, std::int64_t enlarged,
                                               const Window& window, const ImageBox& want,
                                               Tiles which, std::int64_t tile_rows,
                                               std::int64_t tile_columns) {
  std::vector<ConvolutionTile> tiles;
  const PixelSpan rows = rows_of(want), columns = columns_of(want);
  for (std::int64_t row = rows.begin / tile_rows * tile_rows; row < rows.end; row += tile_rows) {
    for (std::int64_t column = columns.begin / tile_columns * tile_columns; column < columns.end;
         column += tile_columns) {
      ConvolutionTile tile{row, column, common({row, row + tile_rows}, rows),
                           common({column, column + tile_columns}, columns)};
      tile.needed_rows = input_of(tile.rows, window, x.height * enlarged);
      tile.needed_columns = input_of(tile.columns, window, x.width * enlarged);
      const auto had = [&](const Image::Piece& piece) {
        return common(rows_of(piece.box, enlarged), tile.needed_rows).count() *
               common(columns_of(piece.box, enlarged), tile.needed_columns).count();
      };
      const std::int64_t needed = tile.needed_rows.count() * tile.needed_columns.count();
      const bool inner = had(x.pieces.front()) == needed;
      if (which != Tiles::all && inner != (which == Tiles::inner)) continue;
      std::int64_t pixels = 0;
      for (const Image::Piece& piece : x.pieces) pixels += had(piece);
      expect(pixels == needed, "convolution at row {}, column {} has {} of the {} pixels it needs",
             row, column, pixels, needed);
      tiles.push_back(tile);
    }
  }
  return tiles;
}

}  // namespace reelmesh::ops
