#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "ops/onednn.hpp"
#include "tensor/ledger.hpp"
#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {
class Convolution;
}

namespace reelmesh::ops {

struct ConvolutionTile;
struct Work;

/// Kernel, stride and zero padding of a convolution, the same along rows and columns. In pixels of
/// its input after upsampling.
struct Window {
  std::int64_t kernel = 3, stride = 1;
  std::int64_t before = 1, after = 1;  ///< zeros above and left, below and right of the image

  /// Pixels of the result along an axis on which the image has `extent` pixels.
  std::int64_t results(std::int64_t extent) const {
    return (extent + before + after - kernel) / stride + 1;
  }
  /// Pixels of the input of `count` adjacent pixels of the result.
  std::int64_t reach(std::int64_t count) const { return (count - 1) * stride + kernel; }
  /// Width of the halo after a part of the image that ends at a multiple of the stride. Before the
  /// part it is `before`.
  std::int64_t halo_after() const { return std::max<std::int64_t>(0, kernel - stride - before); }
};

/// Rows [first, first + count) of an image that is `height` rows high.
struct RowWindow {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t height = 0;
};

/// Throws Error(unavailable) if convolutions over frames in this type would be wrong on the device:
/// some versions of cuDNN compute them wrongly, without an error.
void require_right_convolutions(Device device, DType dtype);

/// A rectangle of an image, in pixels.
struct ImageBox {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// Frames of an image, or a part of it, in pieces that do not overlap: for instance the rank's own
/// box, then halos received from neighbours.
struct Image {
  struct Piece {
    ImageBox box;
    Tensor values;  ///< [frame, row, column, channel], not empty; all pieces have the same frames
  };
  std::int64_t height = 0, width = 0;
  std::vector<Piece> pieces;
};

/// Measures algorithms for a convolution of these shapes on a GPU for about so many seconds, and
/// uses the fastest from now on; with numerics.reproducible of those that have the bits of the
/// first. Does nothing on a CPU. Throws as convolution_choice().
void measure_convolution(Device device, const ConvolutionShape& shape, const Numerics& numerics,
                         double seconds);
/// The algorithm that this rank takes for a convolution of these shapes on a GPU, for
/// use_convolution() on all ranks, whose bits then agree; attempt: from 0, the next after so many
/// that some rank could not use. Throws Error(unavailable) if there is none. Empty on a CPU, which
/// has only one.
std::string convolution_choice(Device device, const ConvolutionShape& shape,
                               const Numerics& numerics, std::size_t attempt);
/// Convolves with that algorithm from now on. → false, and changes nothing, if this rank cannot.
bool use_convolution(Device device, const ConvolutionShape& shape, const Numerics& numerics,
                     const std::string& choice);

/// Which tiles of a convolution to compute. inner: tiles whose input lies in the first piece of the
/// image; outer: tiles that also need other pieces; all: both.
enum class Tiles { inner, outer, all };

/// Convolution of frames with zero padding, optionally causal over the last `kt` frames.
/// Computed in tiles at fixed positions in the image, of one shape except at its right and lower
/// edges, so that a pixel's bits depend only on its place in the image and on the pixels and frames
/// around it, not on how the image is divided among ranks or threads.
class Convolution {
 public:
  Convolution() = default;
  /// weight: [out, in, kt, kernel, kernel] or [out, in, kernel, kernel] (kt = 1); bias: [out].
  /// Computes on the weight's device.
  Convolution(const Tensor& weight, const Tensor& bias, const Numerics& numerics = {},
              const Window& window = {});

  /// Computes the box `want` of the result into out [frame, row, column, out], but only the chosen
  /// tiles. x must hold the pixels of the image under the windows of `want`; with Tiles::inner only
  /// its first piece is read. enlarged: 1, or 2 for nearest-neighbour upsampling by 2 in both
  /// directions before the convolution; `want` is in pixels of the result. previous: the kt − 1
  /// frames before x in the same pieces, or no pieces: then frame 0 of x is repeated.
  void run(const Image& x, const Image& previous, std::int64_t enlarged, const ImageBox& want,
           Tensor& out, Tiles tiles) const;

  /// Convolves all columns of the rows `want`. x: [frame, row, column, in], the rows `have`; →
  /// [frame, row, column, out]. Upsamples by 2 first, unless without it the result has
  /// want.height rows. previous: the frames before x, of the same rows, or empty.
  Tensor operator()(const Tensor& x, const RowWindow& have, const RowWindow& want,
                    const Tensor& previous = {}) const;

  std::int64_t out_channels() const { return out_; }
  std::int64_t frames() const { return kt_; }
  const Window& window() const { return window_; }

 private:
  void pack(const Tensor& weight);  ///< for the CPU
  void pack_shape(const Tensor& weight);
  void run_shape(const Tensor& out) const;
  struct Kernel;
  Kernel kernel_for(std::int64_t rows, std::int64_t columns) const;
  void run_plain(const Kernel& kernel, const float* patch, float* result) const;
  void run_on_cpu(const Image& x, const Image& previous, std::int64_t enlarged,
                  const ImageBox& want, Tensor& out,
                  const std::vector<ConvolutionTile>& tiles) const;
  Work tile_work(const std::vector<ConvolutionTile>& tiles, std::int64_t frames, bool with_previous,
                 std::int64_t enlarged) const;
  template <class T, class C>
  const void* gather(const Image& x, const Image& previous, std::int64_t enlarged,
                     std::int64_t frame, const ConvolutionTile& tile, const Kernel& kernel) const;

  std::int64_t taps() const { return kt_ * window_.kernel * window_.kernel; }

  std::int64_t in_ = 0, out_ = 0, kt_ = 1;
  Window window_;
  std::int64_t padded_in_ = 0, padded_out_ = 0;  ///< multiples of 16, for oneDNN's fast kernels
  DType dtype_ = DType::float32, compute_ = DType::float32;
  Tensor packed_;                                      ///< packed weight, uint8
  Tensor bias_;                                        ///< float32 [out], on the device
  std::shared_ptr<const gpu::Convolution> on_device_;  ///< on a GPU: the implementation
};

}  // namespace reelmesh::ops
