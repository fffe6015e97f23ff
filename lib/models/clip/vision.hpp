#pragma once
// The vision encoder of CLIP (Radford et al. 2021), with tensor names and arithmetic of
// transformers' CLIPVisionModel.
#include "models/clip/config.hpp"
#include "models/common/layers.hpp"

namespace reelmesh {

/// All layers but the last, as Wan uses it: the result is hidden_states[-2], without the last norm.
class ClipVision final : public VisionEncoder {
 public:
  /// Computes on weights.device(). layers: how many of them are made.
  ClipVision(const Checkpoint& weights, const ClipVisionConfig& config, std::int64_t layers,
             DType dtype);
  ClipVision(const Checkpoint& weights, const ClipVisionConfig& config, DType dtype)
      : ClipVision(weights, config, config.layers - 1, dtype) {}

  Tensor embed(const Tensor& pixels) const override;

  /// Names and shapes of all tensors of a checkpoint.
  static ExpectedShapes all_tensors(const ClipVisionConfig& config);

 private:
  struct Layer {
    Affine attention_norm, hidden_norm;
    ops::Linear qkv, out, up, down;
  };
  Tensor normed(const Tensor& x, const Affine& norm) const;

  ClipVisionConfig config_;
  DType dtype_;
  Device device_;
  Numerics numerics_;
  Tensor class_token_;  ///< [1, 1, channel]
  Tensor positions_;    ///< [row, channel]
  ops::Linear patch_;
  Affine first_norm_;
  std::vector<Layer> layers_;
};

}  // namespace reelmesh
