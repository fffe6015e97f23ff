#pragma once
// Layers that both of Open-Sora's autoencoders use, on this rank's part of images.
#include "models/common/image_part.hpp"
#include "ops/linear.hpp"

namespace reelmesh {

/// Loads <name>.weight [out, in, kernel…] and <name>.bias [out], or zeros if `bias` is false. The
/// kernel is 3 along each of kernel_axes axes. Errors as Checkpoint::load.
ops::Convolution load_convolution(const Checkpoint& weights, const std::string& name,
                                  std::int64_t in, std::int64_t out, std::int64_t kernel_axes,
                                  DType dtype, bool bias = true);

/// Options of a residual block and the names of its tensors.
struct ResidualKind {
  std::int64_t groups = 32;
  double eps = 1e-6;
  std::int64_t kernel_axes = 2;  ///< 2: rows and columns; 3: frames as well
  bool bias = true;
  const char* suffix = "";  ///< between a convolution's name and ".weight"
  const char* shortcut = "conv_shortcut";
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

}  // namespace reelmesh
