#pragma once
#include <memory>

#include "ops/onednn.hpp"
#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {
class Convolution;
}

namespace reelmesh::ops {

struct ConvolutionTile;

/// Rows [first, first + count) of an image that is `height` rows high.
struct RowWindow {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t height = 0;
};

/// A rectangle of an image, in pixels.
struct ImageBox {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// Frames of an image, or of the part that is present: pieces that do not overlap. One may be
/// what a rank holds, the others what it got of its neighbours.
struct Image {
  struct Piece {
    ImageBox box;
    Tensor values;  ///< [frame, row, column, channel], not empty; equally many frames in all pieces
  };
  std::int64_t height = 0, width = 0;
  std::vector<Piece> pieces;
};

/// Which tiles of a convolution: those that need the first piece of the image alone, those that
/// need others, or both kinds.
enum class Tiles { inner, outer, all };

/// 3×3 convolution of frames, zero beyond the image's edges, optionally over the last `kt` frames
/// (causal). Computed in tiles of one shape at fixed places of the image, so that a pixel's bits
/// depend on the pixels and frames around it only, not on how the image is divided among ranks or
/// threads.
class Convolution {
 public:
  Convolution() = default;
  /// weight: [out, in, kt, 3, 3] or [out, in, 3, 3] (kt = 1), on the device that computes; bias:
  /// [out].
  Convolution(const Tensor& weight, const Tensor& bias, const Numerics& numerics = {});

  /// Computes `want` of the result into out [frame, row, column, out], those tiles only. x must
  /// have the pixels of `want` and one more on each side within the image; with Tiles::inner only
  /// its first piece is looked at. enlarged: 1, or 2 where the image is first enlarged twice in
  /// both directions by repeating pixels; `want` counts pixels of the result. previous: the kt − 1
  /// frames before x in the same pieces, or no pieces: frame 0 of x is repeated instead.
  void run(const Image& x, const Image& previous, std::int64_t enlarged, const ImageBox& want,
           Tensor& out, Tiles tiles) const;

  /// All columns of the rows `want` from one piece, x: [frame, row, column, in] holding window
  /// `have`; → [frame, row, column, out]. Enlarged where want.height is 2·have.height. previous:
  /// frames of the same window, or empty.
  Tensor operator()(const Tensor& x, const RowWindow& have, const RowWindow& want,
                    const Tensor& previous = {}) const;

  std::int64_t out_channels() const { return out_; }
  std::int64_t frames() const { return kt_; }
  std::int64_t bytes() const;

 private:
  template <class T, class C>
  const void* gather(const Image& x, const Image& previous, std::int64_t enlarged,
                     std::int64_t frame, const ConvolutionTile& tile) const;

  std::int64_t in_ = 0, out_ = 0, kt_ = 1;
  std::int64_t padded_in_ = 0, padded_out_ = 0;  ///< multiples of 16: oneDNN's fast kernels
  DType dtype_ = DType::float32, compute_ = DType::float32;
  Primitive primitive_;
  Tensor packed_;                                      ///< bytes
  Tensor bias_;                                        ///< float32 [out]
  std::shared_ptr<const gpu::Convolution> on_device_;  ///< in the place of all else, on a device
};

}  // namespace reelmesh::ops
