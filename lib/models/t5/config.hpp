#pragma once
// The configuration of the encoders of T5 and UMT5. Source: text_encoder/config.json as written by
// transformers' T5EncoderModel and UMT5EncoderModel. A family needs no code of its own for UMT5:
// the class that the file names decides, and text stage, device map and dry runs follow T5Config.
#include <span>
#include <string_view>

#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

struct T5Config {
  /// UMT5 (Chung et al. 2023) instead of T5: each layer has its own table of position biases, and
  /// padding is masked.
  bool umt5 = false;
  std::int64_t vocab_size = 32128;
  std::int64_t d_model = 512;
  std::int64_t d_kv = 64;
  std::int64_t d_ff = 2048;
  std::int64_t num_layers = 6;
  std::int64_t num_heads = 8;
  std::int64_t num_buckets = 32;
  std::int64_t max_distance = 128;
  double epsilon = 1e-6;

  /// Reads text_encoder/config.json. Throws Error(data) unless it is a T5 with gated gelu (v1.1),
  /// or a UMT5.
  static T5Config read(const Config& config);
  /// Of the encoder, in transformers.
  std::string_view class_name() const;
  /// How many of these ids, the text, </s> and <pad> up to the end, the layers are called with: of
  /// T5, which attends to padding, all; of UMT5 those before the padding. Masked keys have a weight
  /// of zero, so that leaving them out changes no value.
  std::int64_t encoded_tokens(std::span<const std::int32_t> ids) const;
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
/// The table of position biases [bucket, head] of a layer: of T5 all layers share that of layer 0.
std::string t5_position_table(const T5Config& config, std::int64_t layer);

/// Bucket of the relative position key − query (Raffel et al. 2020, bidirectional).
std::int64_t t5_bucket(std::int64_t relative, std::int64_t buckets, std::int64_t max_distance);

}  // namespace reelmesh
