#pragma once
// Layers that the encoder and the decoder of Wan's autoencoder share, on this rank's part of the
// images.
#include "models/common/causal.hpp"
#include "models/wan/config.hpp"
#include "ops/folding.hpp"
#include "ops/linear.hpp"

namespace reelmesh {

/// Zeros come before frame 0.
inline constexpr CausalKind wan_causal{BeforeFirst::zeros, ""};
/// Of convolutions over frames alone.
inline constexpr ops::Window wan_time_window{.kernel = 1, .before = 0, .after = 0};

/// Loads <name>.gamma [channel, 1, 1, 1], or without the last axis for images.
Tensor load_wan_norm(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                     DType dtype, bool images = false);
/// x / max(‖x‖, 1e-12)·√channels·gamma of the channels of each pixel. x: [frame, row, column,
/// channel] (diffusers' WanRMS_norm).
Tensor wan_norm(const Tensor& x, const Tensor& gamma);
/// The same followed by silu.
Tensor wan_norm_silu(const Tensor& x, const Tensor& gamma);

/// A pixel of p × p pixels of x [frame, row, column, channel], with channels in the order channel,
/// column, row of the p × p; and the inverse. x itself if p is 1.
Tensor wan_patches(const Tensor& x, std::int64_t p);
Tensor wan_unpatched(const Tensor& x, std::int64_t p);

/// x + conv2(silu(norm2(conv1(silu(norm1(x)))))), x through a 1×1 convolution if channels change.
class WanResidual {
 public:
  /// index: as for CausalResidual.
  WanResidual(const Checkpoint& weights, const std::string& name, std::int64_t in, std::int64_t out,
              DType dtype, std::size_t& index);
  Tensor operator()(const ImagePart& image, const Tensor& x, EarlierFrames& earlier) const;

 private:
  Tensor norm1_, norm2_;
  CausalResidual block_;
};

/// Two residual blocks, and between them attention of every pixel to all pixels of its frame.
class WanMiddle {
 public:
  WanMiddle() = default;
  WanMiddle(const Checkpoint& weights, const std::string& name, std::int64_t channels, DType dtype,
            std::size_t& index);
  Tensor operator()(const ImagePart& image, const Tensor& x, EarlierFrames& earlier) const;

 private:
  Numerics numerics_;
  std::vector<WanResidual> residuals_;
  Tensor norm_;
  ops::Linear query_, key_value_, out_;
};

}  // namespace reelmesh
