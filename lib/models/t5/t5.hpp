#pragma once
// The encoders of T5 v1.1 (Raffel et al. 2020) and UMT5 (Chung et al. 2023), with tensor names and
// arithmetic of transformers' T5EncoderModel and UMT5EncoderModel, split by layers: a rank holds
// only those that the device map assigns to it.
#include <optional>
#include <span>

#include "layout/weight_stream.hpp"
#include "models/common/layers.hpp"
#include "models/t5/config.hpp"

namespace reelmesh {

/// The type of the residual stream: float32 if `dtype` is float16, which overflows in the large T5;
/// otherwise `dtype`. The weight `wo`, the last of each layer, has this type too, as in
/// transformers.
DType t5_stream(DType dtype);

/// Some consecutive layers of the encoder.
class T5Layers {
 public:
  /// Computes on weights.device(). placement: as of WeightStream.
  T5Layers(const Checkpoint& weights, const T5Config& config, const T5Part& part, DType dtype,
           const WeightPlacement& placement = {});

  const T5Part& part() const { return part_; }
  /// Token ids → [token, 1, d_model] of t5_stream(dtype); needs part().embedding. Reads only these
  /// rows of the table from the file: all of UMT5's would take 2 GiB. Throws Error(data) for an id
  /// that is out of range.
  Tensor embed(std::span<const std::int32_t> ids) const;
  /// Applies the layers, and the final norm if this part has it. x: [token, 1, d_model] of
  /// t5_stream(dtype) → the same shape; the same type, or `dtype` after the final norm. There is no
  /// mask: every token attends to all of x, which has T5Config::encoded_tokens().
  Tensor operator()(Tensor x) const;

 private:
  struct Layer {
    Tensor attention_norm, feed_forward_norm;
    ops::Linear qkv, out, gate, up, down;
    Tensor position_table;  ///< float32 [bucket, head] on the host
  };
  Tensor normed(const Tensor& x, const Tensor& weight) const;
  Tensor position_bias(const Layer& layer, std::int64_t tokens, Device device) const;

  T5Config config_;
  T5Part part_;
  DType dtype_;
  Numerics numerics_;
  std::optional<Checkpoint> embedding_;  ///< set if this part has the embedding
  Tensor final_norm_;
  /// Of T5, whose layers share it, for the last number of tokens: prompts of a job mostly have the
  /// same. Those of UMT5's layers would take 1.6 GB for 512 tokens of the released size.
  mutable Tensor position_bias_;
  std::vector<Layer> layers_;
};

/// x, [token, 1, channel] of the tokens before the padding, with rows of zeros up to `tokens`.
Tensor with_zero_rows(const Tensor& x, std::int64_t tokens);

}  // namespace reelmesh
