#include "ops/convolution_tiles.hpp"

namespace reelmesh::ops {
namespace {

// The input of a span of the result, clipped to the image.
PixelSpan input_span(const PixelSpan& span, const Window& window, std::int64_t extent) {
  const std::int64_t first = span.begin * window.stride - window.before;
  return common({first, first + window.reach(span.count())}, {0, extent});
}

}  // namespace

PixelSpan common(const PixelSpan& a, const PixelSpan& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

PixelSpan row_span(const ImageBox& box, std::int64_t enlarged) {
  return {box.row * enlarged, (box.row + box.rows) * enlarged};
}

PixelSpan column_span(const ImageBox& box, std::int64_t enlarged) {
  return {box.column * enlarged, (box.column + box.columns) * enlarged};
}

std::vector<ConvolutionTile> convolution_tiles(const Image& x, std::int64_t enlarged,
                                               const Window& window, const ImageBox& want,
                                               Tiles which, std::int64_t tile_rows,
                                               std::int64_t tile_columns) {
  std::vector<ConvolutionTile> tiles;
  const PixelSpan rows = row_span(want), columns = column_span(want);
  const std::int64_t height = window.results(x.height * enlarged);
  const std::int64_t width = window.results(x.width * enlarged);
  for (std::int64_t row = rows.begin / tile_rows * tile_rows; row < rows.end; row += tile_rows) {
    for (std::int64_t column = columns.begin / tile_columns * tile_columns; column < columns.end;
         column += tile_columns) {
      ConvolutionTile tile{.row = row, .column = column};
      tile.height = std::min(tile_rows, height - row);
      tile.width = std::min(tile_columns, width - column);
      tile.rows = common({row, row + tile_rows}, rows);
      tile.columns = common({column, column + tile_columns}, columns);
      tile.needed_rows = input_span(tile.rows, window, x.height * enlarged);
      tile.needed_columns = input_span(tile.columns, window, x.width * enlarged);
      const auto had = [&](const Image::Piece& piece) {
        return common(row_span(piece.box, enlarged), tile.needed_rows).count() *
               common(column_span(piece.box, enlarged), tile.needed_columns).count();
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
