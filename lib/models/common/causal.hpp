#pragma once
// Layers of causal video autoencoders, on this rank's part of the images. A clip is computed in
// batches of frames; convolutions go on from the frames before.
#include <functional>

#include "models/common/image_part.hpp"
#include "ops/convolution.hpp"
#include "ops/linear.hpp"

namespace reelmesh {

/// The last two input frames of each causal convolution, by its index, kept from one batch of a
/// clip to the next.
struct EarlierFrames {
  explicit EarlierFrames(std::size_t convolutions) : frames(convolutions) {}
  std::vector<ops::Image> frames;  ///< empty before the first batch
  bool last_batch = false;         ///< no frames need to be kept
};

/// The two frames that a causal convolution sees before frame 0 of a clip.
enum class BeforeFirst { repeated, zeros };

/// What differs between families.
struct CausalKind {
  BeforeFirst before_first = BeforeFirst::repeated;
  const char* suffix = ".conv";  ///< between a convolution's name and ".weight"
};

/// Convolution over a frame and the two before it (diffusers' CogVideoXCausalConv3d and
/// WanCausalConv3d).
class CausalConvolution {
 public:
  CausalConvolution() = default;
  /// convolution: over 3 frames. index: of its frames in EarlierFrames.
  CausalConvolution(const ops::Convolution& convolution, BeforeFirst before_first,
                    std::size_t index);
  /// 3×3×3: loads <name><suffix>.weight and .bias.
  CausalConvolution(const Checkpoint& weights, const std::string& name, std::int64_t in,
                    std::int64_t out, DType dtype, std::size_t index, const CausalKind& kind = {});

  /// x: [frame, row, column, in] → [frame, row, column, out]. Replaces its frames in `earlier`,
  /// unless this is the last batch.
  Tensor operator()(const ImagePart& image, const Tensor& x, EarlierFrames& earlier) const;
  /// Computes nothing: x are frames before those of the next call.
  void skip(const ImagePart& image, const Tensor& x, EarlierFrames& earlier) const;

 private:
  void keep(const ops::Image& now, EarlierFrames& earlier) const;

  ops::Convolution convolution_;
  BeforeFirst before_first_ = BeforeFirst::repeated;
  std::size_t index_ = 0;
};

/// x + conv2(norm2(conv1(norm1(x)))), x through a 1×1 convolution if channels change (diffusers'
/// CogVideoXResnetBlock3D and WanResidualBlock).
class CausalResidual {
 public:
  /// A norm followed by silu; the result may share the memory of x.
  using Norm = std::function<Tensor(const Tensor& x)>;

  /// Loads <name>.conv1, .conv2 and, if channels change, .conv_shortcut. index: as for
  /// CausalConvolution; two are used, and it is advanced.
  CausalResidual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                 std::int64_t out, DType dtype, std::size_t& index, const CausalKind& kind = {});

  /// norm1 must not write to x.
  Tensor operator()(const ImagePart& image, const Tensor& x, EarlierFrames& earlier,
                    const Norm& norm1, const Norm& norm2) const;

 private:
  CausalConvolution conv1_, conv2_;
  ops::Linear shortcut_;  ///< none if out_features() is 0
};

}  // namespace reelmesh
