#include "ops/cuda/convolution.hpp"

#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "ops/cuda/convolve.hpp"
#include "ops/cuda/image_tiles.hpp"
#include "ops/parallel.hpp"
#include "tensor/cuda/libraries.hpp"

namespace reelmesh::gpu {
namespace {

// Tiles that are convolved together. May affect the bits, but is the same in all layouts.
constexpr std::int64_t batch = TileBatch::max_tiles;

// from: [out, in, taps] → into: [out, taps, padded].
template <class Bits>
void turn(const void* from, void* into, std::int64_t out, std::int64_t in, std::int64_t taps,
          std::int64_t padded) {
  const auto* plain = static_cast<const Bits*>(from);
  auto* turned = static_cast<Bits*>(into);
  ops::parallel_for(out, 8, [&](std::int64_t o) {
    for (std::int64_t t = 0; t < taps; ++t) {
      Bits* row = turned + (o * taps + t) * padded;
      for (std::int64_t i = 0; i < in; ++i) row[i] = plain[(o * in + i) * taps + t];
    }
  });
}

// [out, in, kt, kernel, kernel] → [out, kt, kernel, kernel, in], channels zero-padded.
Tensor channels_last(const Tensor& weight, std::int64_t kt, std::int64_t kernel) {
  const std::int64_t out = weight.shape(0), in = weight.shape(1), taps = kt * kernel * kernel;
  const Shape padded = Convolution::padded_weight(weight.shape());
  const Tensor plain = weight.on({});
  Tensor result = Tensor::zeros(padded, weight.dtype());
  const auto turned = size_of(weight.dtype()) == 2 ? turn<std::uint16_t> : turn<std::uint32_t>;
  turned(plain.raw(), result.raw(), out, in, taps, padded.back());
  return result.on(weight.device());
}

std::size_t cudnn_version() {
  const REELMESH_LIBRARY_FUNCTION(cuda::cudnn(), cudnnGetVersion);
  return cudnnGetVersion();
}

ImageTiles make_image_tiles(const ops::Image& x, const ops::Image& previous, std::int64_t enlarged,
                            const ops::Window& window, std::int64_t before, Device device) {
  expect(x.pieces.size() <= ImageTiles::max_pieces, "convolution of {} pieces", x.pieces.size());
  ImageTiles image{};
  image.doublings = static_cast<int>(enlarged - 1);
  image.stride = static_cast<int>(window.stride);
  image.padding = static_cast<int>(window.before);
  image.before = static_cast<int>(before);
  for (std::size_t i = 0; i < x.pieces.size(); ++i) {
    const auto& [box, values] = x.pieces[i];
    image.piece[image.pieces++] = {
        values.address_on(device),
        previous.pieces.empty() ? nullptr : previous.pieces[i].values.address_on(device),
        static_cast<int>(box.row),
        static_cast<int>(box.rows),
        static_cast<int>(box.column),
        static_cast<int>(box.columns)};
  }
  return image;
}

TileBatch make_tile_batch(std::span<const ops::ConvolutionTile> tiles) {
  const auto span = [](const ops::PixelSpan& s) {
    return TileBatch::Span{static_cast<int>(s.begin), static_cast<int>(s.end)};
  };
  TileBatch result{};
  for (const ops::ConvolutionTile& tile : tiles) {
    result.tile[result.tiles++] = {
        static_cast<int>(tile.row), static_cast<int>(tile.column), span(tile.rows),
        span(tile.columns),         span(tile.needed_rows),        span(tile.needed_columns)};
  }
  return result;
}

}  // namespace

void require_right_convolutions(DType dtype) {
  // PyTorch's issue 163539, and its pull requests 163581 and 166480, which avoid these versions.
  constexpr std::size_t first_wrong = 90800, first_right = 91500;
  const std::size_t version = cudnn_version();
  require(size_of(dtype) != 2 || version < first_wrong || version >= first_right,
          Status::unavailable,
          "cuDNN {} computes 16-bit convolutions over frames wrongly, as versions from 9.8 to 9.14 "
          "do; install 9.15.1 or later, or use numerics.dtype = float32",
          cuda::version_text(version));
}

bool allows_tf32(const Numerics& numerics, std::int64_t frames) {
  // PyTorch's pull request 167024: wrong from 9.10.2 to 9.15.
  constexpr std::size_t first_wrong = 91002, first_right = 91600;
  if (!numerics.tf32 || frames == 1) return numerics.tf32;
  const std::size_t version = cudnn_version();
  return version < first_wrong || version >= first_right;
}

Convolution::Convolution(const Tensor& weight, const Tensor& bias, const Numerics& numerics,
                         const ops::Window& window)
    : in_(weight.shape(1)),
      out_(weight.shape(0)),
      kt_(weight.shape().size() == 5 ? weight.shape(2) : 1),
      window_(window),
      weight_(channels_last(weight, kt_, window.kernel)),
      bias_(bias),
      tf32_(allows_tf32(numerics, kt_)) {}

void Convolution::run(const ops::Image& x, const ops::Image& previous, std::int64_t enlarged,
                      const ops::ImageBox& want, Tensor& out,
                      const std::vector<ops::ConvolutionTile>& tiles) const {
  const std::int64_t frames = out.shape(0);
  const Device device = out.device();
  const ImageTiles image = make_image_tiles(x, previous, enlarged, window_, kt_ - 1, device);
  const TileShapes tile = tile_shapes(frames, weight_.shape(), window_);
  Tensor source = Tensor::empty(tile.source, out.dtype(), device);
  Tensor result = Tensor::empty(tile.result, out.dtype(), device);
  for (std::int64_t first = 0; first < std::ssize(tiles); first += batch) {
    const auto count = static_cast<std::size_t>(std::min(batch, std::ssize(tiles) - first));
    const TileBatch some = make_tile_batch({&tiles[static_cast<std::size_t>(first)], count});
    gather_tiles(image, some, in_, source);
    convolve(source, weight_, window_.stride, tf32_, result);
    scatter_tiles(some, result, bias_, out, want.row, want.column);
  }
}

}  // namespace reelmesh::gpu
