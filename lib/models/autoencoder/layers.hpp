#pragma once
// Layers that the encoders and decoders of Open-Sora's autoencoders share, on this rank's part of
// images.
#include "models/common/image_part.hpp"
#include "ops/linear.hpp"

namespace reelmesh {

/// Loads <name>.weight [out, in, kernel…] and <name>.bias [out], or zeros if `bias` is false. The
/// kernel is 3 along each of kernel_axes axes. window: of rows and columns. Errors as
/// Checkpoint::load.
ops::Convolution load_convolution(const Checkpoint& weights, const std::string& name,
                                  std::int64_t in, std::int64_t out, std::int64_t kernel_axes,
                                  DType dtype, bool bias = true, const ops::Window& window = {});

/// Loads a tensor with a value for each channel, whose other axes have one entry; rounded to
/// `dtype`. Zeros in a dry run. Errors as Checkpoint::load.
std::vector<float> load_channel_values(const Checkpoint& weights, const std::string& name,
                                       const Shape& shape, DType dtype);

/// Options of a residual block and the names of its tensors.
struct ResidualKind {
  std::int64_t groups = 32;
  double eps = 1e-6;
  std::int64_t kernel_axes = 2;  ///< 2: rows and columns; 3: frames as well
  bool bias = true;
  const char* suffix = "";  ///< between a convolution's name and ".weight"
  const char* shortcut = "conv_shortcut";

  /// Those of the temporal autoencoder.
  static ResidualKind temporal(std::int64_t groups) {
    return {.groups = groups,
            .eps = 1e-5,  // PyTorch's default
            .kernel_axes = 3,
            .bias = false,
            .suffix = ".conv",
            .shortcut = "conv3"};
  }
};

/// x + conv2(silu(norm2(conv1(silu(norm1(x)))))), x through a 1×1 convolution if channels change.
class ResidualBlock {
 public:
  ResidualBlock(const Checkpoint& weights, const std::string& name, std::int64_t in,
                std::int64_t out, const ResidualKind& kind, DType dtype);
  Tensor operator()(const ImagePart& image, const Tensor& x) const;

 private:
  std::int64_t groups_;
  double eps_;
  Affine norm1_, norm2_;
  ops::Convolution conv1_, conv2_;
  ops::Linear shortcut_;  ///< none if out_features() is 0
};

/// Residual blocks <name>.0, <name>.1, …, of which the first changes the channels.
std::vector<ResidualBlock> load_residuals(const Checkpoint& weights, const std::string& name,
                                          std::int64_t count, std::int64_t in, std::int64_t out,
                                          const ResidualKind& kind, DType dtype);

/// Two residual blocks, and attention of every pixel to all pixels of its image between them
/// (diffusers' UNetMidBlock2D).
class MiddleBlock {
 public:
  MiddleBlock() = default;
  MiddleBlock(const Checkpoint& weights, const std::string& name, std::int64_t channels,
              const ResidualKind& kind, DType dtype);
  /// x: [1, row, column, channel].
  Tensor operator()(const ImagePart& image, const Tensor& x) const;

 private:
  Tensor attend(const ImagePart& image, const Tensor& x) const;

  Numerics numerics_;
  std::int64_t groups_ = 0;
  double eps_ = 0;
  std::vector<ResidualBlock> residuals_;
  Affine norm_;
  ops::Linear query_, key_value_, out_;
};

}  // namespace reelmesh
