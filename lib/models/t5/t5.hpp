#pragma once
// The encoder of T5 v1.1 (Raffel et al. 2020; tensor names and arithmetic of transformers'
// T5EncoderModel), split by layers: a rank holds only those that the device map assigns to it.
#include <span>

#include "models/common/layers.hpp"
#include "weights/config.hpp"

namespace reelmesh {

struct T5Config {
  std::int64_t vocab_size = 32128;
  std::int64_t d_model = 512;
  std::int64_t d_kv = 64;
  std::int64_t d_ff = 2048;
  std::int64_t num_layers = 6;
  std::int64_t num_heads = 8;
  std::int64_t num_buckets = 32;
  std::int64_t max_distance = 128;
  double epsilon = 1e-6;

  /// Reads text_encoder/config.json. Throws Error(data) unless it is a T5 with gated gelu (v1.1).
  static T5Config read(const Config& config);
};

/// Names and shapes of all tensors of text_encoder/.
ExpectedShapes t5_tensors(const T5Config& config);
/// The part of the encoder that a rank holds: layers [first, last), the embedding, the final norm.
struct T5Part {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool embedding = false;
  bool final_norm = false;
};
/// The tensors of a part.
ExpectedShapes t5_tensors(const T5Config& config, const T5Part& part);

/// The type of the residual stream: float32 if `dtype` is float16, which overflows in the large T5;
/// otherwise `dtype`. The weight `wo`, the last of each layer, has this type too, as in
/// transformers.
DType t5_stream(DType dtype);

/// Some consecutive layers of the encoder.
class T5Layers {
 public:
  /// Computes on weights.device().
  T5Layers(const Checkpoint& weights, const T5Config& config, const T5Part& part, DType dtype);

  const T5Part& part() const { return part_; }
  /// Token ids → [token, 1, d_model] of t5_stream(dtype); needs part().embedding.
  Tensor embed(std::span<const std::int32_t> ids) const;
  /// Applies the layers, and the final norm if this part has it. x: [token, 1, d_model] of
  /// t5_stream(dtype) → the same shape; the same type, or `dtype` after the final norm. There is no
  /// mask, as in CogVideoX: tokens also attend to padding.
  Tensor operator()(Tensor x) const;
  std::int64_t bytes() const;

 private:
  struct Layer {
    Tensor attention_norm, feed_forward_norm;
    ops::Linear qkv, out, gate, up, down;
  };
  Tensor normed(const Tensor& x, const Tensor& weight) const;
  Tensor position_bias(std::int64_t tokens) const;

  T5Config config_;
  T5Part part_;
  DType dtype_;
  Numerics numerics_;
  Tensor embedding_, final_norm_;
  Tensor position_table_;  ///< float32 [bucket, head] on the host
  std::vector<Layer> layers_;
};

/// Bucket of the relative position key − query (Raffel et al. 2020, bidirectional).
std::int64_t t5_bucket(std::int64_t relative, std::int64_t buckets, std::int64_t max_distance);

}  // namespace reelmesh
