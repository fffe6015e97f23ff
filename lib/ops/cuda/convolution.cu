// nvcc cannot compile ops/onednn.hpp. So the class Convolution is in convolution.hpp, for the host
// compiler, and only functions that launch kernels are here.
#include "ops/cuda/image_tiles.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

// Fills x[item][frame][row][column][padded_in] with the input of the tiles: previous frames first,
// upsampled by repeating pixels; zero beyond the image and in channels beyond `in`.
template <class T>
struct Gather {
  ImageTiles image;
  TileBatch batch;  ///< further items of x are zero
  T* x;
  Divisor frames, rows, columns, padded_in;
  std::uint32_t in;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn pixel(at, padded_in);
    const Split line(pixel.row, columns), plane(line.quotient, rows),
        item_frame(plane.quotient, frames);
    const std::uint32_t c = line.rest, r = plane.rest, t = item_frame.rest;
    const int item = static_cast<int>(item_frame.quotient);
    float v[W] = {};
    if (item < batch.tiles && pixel.column < in) {
      const TileBatch::Tile& tile = batch.tile[item];
      const int row = tile.row * image.stride + static_cast<int>(r) - image.padding;
      const int column = tile.column * image.stride + static_cast<int>(c) - image.padding;
      if (row >= tile.needed_rows.begin && row < tile.needed_rows.end &&
          column >= tile.needed_columns.begin && column < tile.needed_columns.end) {
        for (int i = 0; i < image.pieces; ++i) {
          const ImageTiles::Piece& piece = image.piece[i];
          const int y = (row >> image.doublings) - piece.row,
                    z = (column >> image.doublings) - piece.column;
          if (y < 0 || y >= piece.rows || z < 0 || z >= piece.columns) continue;
          const int frame = static_cast<int>(t) - image.before;
          const bool earlier = frame < 0 && piece.earlier != nullptr;
          const auto* from = static_cast<const T*>(earlier ? piece.earlier : piece.values);
          const int in_piece = earlier ? static_cast<int>(t) : (frame < 0 ? 0 : frame);
          load<W>(from + ((std::int64_t{in_piece} * piece.rows + y) * piece.columns + z) * in +
                      pixel.column,
                  v);
        }
      }
    }
    store<W>(v, x + at);
  }
};

// Writes the part to store of each tile, plus the bias. y: [item][frame][row][column][padded]; out:
// [frame][row][column][channels], whose first pixel is (first_row, first_column).
template <class T>
struct Scatter {
  TileBatch batch;
  const T* y;
  const float* bias;
  T* out;
  Divisor frames, rows, columns, channels;
  std::uint32_t padded;
  std::int32_t first_row, first_column;
  std::uint32_t out_rows, out_columns;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn pixel(at, channels);
    const Split line(pixel.row, columns), plane(line.quotient, rows),
        item_frame(plane.quotient, frames);
    const std::uint32_t c = line.rest, r = plane.rest, t = item_frame.rest;
    const TileBatch::Tile& tile = batch.tile[item_frame.quotient];
    const int row = tile.row + static_cast<int>(r), column = tile.column + static_cast<int>(c);
    if (row < tile.rows.begin || row >= tile.rows.end || column < tile.columns.begin ||
        column >= tile.columns.end) {
      return;
    }
    const std::int64_t out_pixel =
        (std::int64_t{t} * out_rows + row - first_row) * out_columns + column - first_column;
    const auto sum = [](float v, float b) { return v + b; };
    each<W>(out + out_pixel * channels.divisor() + pixel.column, sum,
            y + std::int64_t{pixel.row} * padded + pixel.column, bias + pixel.column);
  }
};

}  // namespace

void gather_tiles(const ImageTiles& image, const TileBatch& tiles, std::int64_t in, Tensor& x) {
  const Device device = x.device();
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(x, device);
    const Gather<T> f{image,
                      tiles,
                      into,
                      make_divisor(x.shape(1)),
                      make_divisor(x.shape(2)),
                      make_divisor(x.shape(3)),
                      make_divisor(x.shape(4)),
                      narrow_index(in)};
    std::vector<const void*> addresses{into};
    for (int i = 0; i < image.pieces; ++i) {
      addresses.insert(addresses.end(), {image.piece[i].values, image.piece[i].earlier});
    }
    for_packs<T>("gather_tiles", device, x.numel(), in, addresses, f);
  });
}

void scatter_tiles(const TileBatch& tiles, const Tensor& y, const Tensor& bias, Tensor& out,
                   std::int64_t first_row, std::int64_t first_column) {
  const Device device = y.device();
  visit_float(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = address<T>(y, device);
    T* into = address<T>(out, device);
    const auto* b = address<float>(bias, device);
    const std::int64_t n = out.shape(3);
    const Scatter<T> f{tiles,
                       from,
                       b,
                       into,
                       make_divisor(y.shape(1)),
                       make_divisor(y.shape(2)),
                       make_divisor(y.shape(3)),
                       make_divisor(n),
                       narrow_index(y.shape(4)),
                       static_cast<std::int32_t>(first_row),
                       static_cast<std::int32_t>(first_column),
                       narrow_index(out.shape(1)),
                       narrow_index(out.shape(2))};
    const std::int64_t count = tiles.tiles * y.shape(1) * y.shape(2) * y.shape(3) * n;
    for_packs<T>("scatter_tiles", device, count, n, {from, into, b}, f);
  });
}

}  // namespace reelmesh::gpu
