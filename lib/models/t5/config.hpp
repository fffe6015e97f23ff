#pragma once
// The configuration of T5's encoder. Source: text_encoder/config.json as written by transformers'
// T5EncoderModel.
#include "weights/checkpoint.hpp"
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
  bool operator==(const T5Config&) const = default;
};

/// The part of the encoder that a rank holds: layers [first, last), the embedding, the final norm.
struct T5Part {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool embedding = false;
  bool final_norm = false;

  static T5Part whole(const T5Config& config) { return {0, config.num_layers, true, true}; }
};

/// Name of a tensor of a layer: `rest` is "0.layer_norm.weight", for instance.
std::string t5_layer_name(std::int64_t layer, const char* rest);
/// The table of position biases [bucket, head], which all layers share.
inline constexpr const char* t5_position_table =
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";

/// Bucket of the relative position key − query (Raffel et al. 2020, bidirectional).
std::int64_t t5_bucket(std::int64_t relative, std::int64_t buckets, std::int64_t max_distance);

}  // namespace reelmesh
