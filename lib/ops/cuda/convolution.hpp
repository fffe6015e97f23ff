#pragma once
#include <vector>

#include "ops/convolution.hpp"
#include "ops/convolution_tiles.hpp"

namespace reelmesh::gpu {

/// As ops::require_right_convolutions, for the cuDNN that is loaded.
void require_right_convolutions(DType dtype);
/// Whether float32 convolutions may use TF32: as `numerics` says, but not where cuDNN's are wrong.
bool allows_tf32(const Numerics& numerics, std::int64_t frames);

/// ops::Convolution on a GPU, channels last. Tiles of one shape at fixed positions in the image are
/// gathered with their zero padding, and convolved in batches of a fixed number of tiles. So cuDNN
/// always sees the same problem and uses one algorithm, and a pixel's bits depend only on the
/// pixels and frames around it and on the number of frames. The result is rounded by cuDNN, and
/// again when the bias is added.
class Convolution {
 public:
  /// Pixels of a tile. They may affect the bits, but are the same in all layouts.
  static constexpr std::int64_t tile_rows = 16, tile_columns = 32;

  /// weight: [out, in, kt, kernel, kernel] or [out, in, kernel, kernel]; bias: float32 [out]. Both
  /// on the device.
  Convolution(const Tensor& weight, const Tensor& bias, const Numerics& numerics,
              const ops::Window& window);

  /// As ops::Convolution::run, which has checked the arguments and chosen the tiles.
  void run(const ops::Image& x, const ops::Image& previous, std::int64_t enlarged,
           const ops::ImageBox& want, Tensor& out,
           const std::vector<ops::ConvolutionTile>& tiles) const;

  std::int64_t bytes() const { return weight_.bytes() + bias_.bytes(); }

 private:
  std::int64_t in_, out_, kt_;
  ops::Window window_;
  Tensor weight_;  ///< [out, kt, kernel, kernel, in], channels padded with zeros
  Tensor bias_;
  bool tf32_;
};

}  // namespace reelmesh::gpu
