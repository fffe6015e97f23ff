#pragma once
// The encoder of T5 v1.1 (Raffel et al. 2020; names and rules of transformers' T5EncoderModel), in
// pieces: a rank holds only the layers that the device map gives it.
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

  /// text_encoder/config.json. Error(data) for what is not a gated-gelu T5.
  static T5Config read(const Config& config);
};

/// Names and shapes of the tensors of text_encoder/ .
ExpectedShapes t5_tensors(const T5Config& config);
/// Those that a rank needs which holds layers [first, last), the embedding, the final norm.
struct T5Part {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool embedding = false;
  bool final_norm = false;
};
ExpectedShapes t5_tensors(const T5Config& config, const T5Part& part);

/// The type of the hidden state between layers. float16 could not hold those of the large T5: as in
/// transformers the last product of each layer has float32 weights then, and their sum is float32.
DType t5_stream(DType dtype);

/// Some consecutive layers of the encoder.
class T5Layers {
 public:
  /// On the device to which the weights are loaded.
  T5Layers(const Checkpoint& weights, const T5Config& config, const T5Part& part, DType dtype);

  const T5Part& part() const { return part_; }
  /// Token ids → [token, 1, d_model] of t5_stream(dtype); needs part().embedding.
  Tensor embed(std::span<const std::int32_t> ids) const;
  /// The layers, and the final norm if this part has it. x: [token, 1, d_model] of t5_stream(dtype)
  /// → the same shape and type, or after the final norm of dtype. All tokens attend to all, padding
  /// too: CogVideoX gives no mask.
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
