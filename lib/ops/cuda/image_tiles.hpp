#pragma once
// Copies of tiles from the pieces of an image to batches for convolution, and back.
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// Kernel argument: the tiles of a batch.
struct TileBatch {
  static constexpr int max_tiles = 16;
  struct Span {
    int begin, end;
  };
  struct Tile {
    int row, column;                   ///< first pixel of the result
    Span rows, columns;                ///< of the result, to store
    Span needed_rows, needed_columns;  ///< the input of what is stored
  };
  Tile tile[max_tiles];
  int tiles;
};

/// Kernel argument: an ops::Image with the frames before it.
struct ImageTiles {
  static constexpr int max_pieces = 8;
  struct Piece {
    const void* values;  ///< [frame, row, column, channel]
    /// `before` frames of the same box, or null: then frame 0 of values is repeated.
    const void* earlier;
    int row, rows, column, columns;
  };
  Piece piece[max_pieces];
  int pieces;
  int doublings;  ///< of rows and columns before the convolution: 0 or 1
  int stride;     ///< of the convolution
  int padding;    ///< rows above and columns left of the image
  int before;     ///< number of frames before frame 0
};

/// Copies the input of each tile to one item of x; items without a tile become zero. in: channels
/// of the image; x: [item, before + frames, row, column, padded channels] with the rows and columns
/// under the windows of a tile.
void gather_tiles(const ImageTiles& image, const TileBatch& tiles, std::int64_t in, Tensor& x);

/// Writes the part to store of each tile, plus the bias, to `out`. y: [item, frame, tile row, tile
/// column, padded channels], one item for each tile, then unused ones; bias: float32 [channel];
/// out: [frame, row, column, channel], whose first pixel is (first_row, first_column).
void scatter_tiles(const TileBatch& tiles, const Tensor& y, const Tensor& bias, Tensor& out,
                   std::int64_t first_row, std::int64_t first_column);

}  // namespace reelmesh::gpu
