#pragma once
// Tiles of images between the pieces that a rank has and the batches that are convolved.
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// Numbers of a tile, int32: its row and column, then begin and end of the rows and of the columns
/// that are wanted of it, and of the rows and of the columns which that needs.
constexpr int tile_numbers = 10;

/// An image as kernels see it: ops::Image with what is before it.
struct ImageTiles {
  static constexpr int max_pieces = 8;
  struct Piece {
    const void* values;  ///< [frame, row, column, channel]
    const void*
        earlier;  ///< `before` frames of the same pixels, or null: the first frame of values
    int row, rows, column, columns;
  };
  Piece piece[max_pieces];
  int pieces;
  int enlarged;  ///< 1 or 2
  int before;    ///< frames before the first
};

/// tiles: int32 [tile, tile_numbers]; x: [item, before + frames, tile rows + 2, tile columns + 2,
/// channels padded], filled from the tiles, and with zeros where there are fewer tiles than items.
/// in: channels of the image.
void gather_tiles(const ImageTiles& image, const Tensor& tiles, std::int64_t in, Tensor& x);

/// y: [item, frame, tile row, tile column, channels padded], of the first items; bias: float32
/// [channel]; out: [frame, row, column, channel], whose first pixel is (first_row, first_column).
void scatter_tiles(const Tensor& tiles, const Tensor& y, const Tensor& bias, Tensor& out,
                   std::int64_t first_row, std::int64_t first_column);

}  // namespace reelmesh::gpu
