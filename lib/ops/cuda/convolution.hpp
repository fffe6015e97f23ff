#pragma once
#include <vector>

#include "ops/convolution.hpp"
#include "ops/convolution_tiles.hpp"
#include "ops/cuda/image_tiles.hpp"

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

  /// Limit on cuDNN's workspace.
  static constexpr std::int64_t max_workspace = std::int64_t{512} << 20;
  /// The shape in which a weight is kept: [out, kt, kernel, kernel, in], channels padded.
  static Shape padded_weight(const Shape& weight) {
    const bool over_frames = weight.size() == 5;
    return {padded(weight[0]), over_frames ? weight[2] : 1, weight.back(), weight.back(),
            padded(weight[1])};
  }
  /// The shapes of the tiles that are convolved together, before and after. weight: padded.
  struct TileShapes {
    Shape source, result;
  };
  static TileShapes tile_shapes(std::int64_t frames, const Shape& weight,
                                const ops::Window& window) {
    return {{TileBatch::max_tiles, frames + weight[1] - 1, window.reach(tile_rows),
             window.reach(tile_columns), weight[4]},
            {TileBatch::max_tiles, frames, tile_rows, tile_columns, weight[0]}};
  }

 private:
  static constexpr std::int64_t padded(std::int64_t channels) { return (channels + 7) / 8 * 8; }

  std::int64_t in_, out_, kt_;
  ops::Window window_;
  Tensor weight_;  ///< [out, kt, kernel, kernel, in], channels padded with zeros
  Tensor bias_;
  bool tf32_;
};

}  // namespace reelmesh::gpu
