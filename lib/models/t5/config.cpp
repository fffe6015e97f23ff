#include "models/t5/config.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace reelmesh {

std::string t5_layer_name(std::int64_t layer, const char* rest) {
  return fmt::format("encoder.block.{}.layer.{}", layer, rest);
}

std::string t5_position_table(const T5Config& config, std::int64_t layer) {
  return t5_layer_name(config.umt5 ? layer : 0, "0.SelfAttention.relative_attention_bias.weight");
}

namespace {

// A class of text encoders.
struct EncoderClass {
  // In config.json: the encoder's own; whole models, whose encoder is the same and whose decoder is
  // never read; the model_type.
  std::array<std::string_view, 4> names;
  // In transformers:
  T5Config defaults;
  const char* feed_forward;
};

// A configuration that names no class gets the first one.
constexpr EncoderClass classes[] = {
    {{"T5EncoderModel", "T5ForConditionalGeneration", "T5Model", "t5"}, {}, "relu"},
    {{"UMT5EncoderModel", "UMT5ForConditionalGeneration", "UMT5Model", "umt5"},
     {.umt5 = true, .vocab_size = 250112, .d_ff = 1024, .num_layers = 8, .num_heads = 6},
     "gated-gelu"}};

}  // namespace

std::string_view T5Config::class_name() const {
  return std::ranges::find(classes, umt5, [](const EncoderClass& row) { return row.defaults.umt5; })
      ->names.front();
}

T5Config T5Config::read(const Config& config) {
  constexpr std::int64_t max_value = 1 << 20;
  std::vector<std::string> names;
  for (const EncoderClass& row : classes)
    names.insert(names.end(), row.names.begin(), row.names.end());
  const EncoderClass& found = *std::ranges::find_if(
      classes, [name = require_class(config, names)](const EncoderClass& row) {
        return name.empty() || std::ranges::find(row.names, name) != row.names.end();
      });
  T5Config c = found.defaults;
  c.vocab_size = config.get_int("vocab_size", c.vocab_size, 1, 1 << 24);
  c.d_model = config.get_int("d_model", c.d_model, 1, max_value);
  c.d_kv = config.get_int("d_kv", c.d_kv, 1, max_value);
  c.d_ff = config.get_int("d_ff", c.d_ff, 1, max_value);
  c.num_layers = config.get_int("num_layers", c.num_layers, 1, 1000);
  c.num_heads = config.get_int("num_heads", c.num_heads, 1, 10000);
  require(c.num_heads <= max_value / c.d_kv, Status::data,
          "{}: num_heads {} times d_kv {}, expected at most {} channels", config.file().string(),
          c.num_heads, c.d_kv, max_value);
  c.num_buckets = config.get_int("relative_attention_num_buckets", c.num_buckets, 4, 4096);
  c.max_distance = config.get_int("relative_attention_max_distance", c.max_distance, 2, max_value);
  c.epsilon = config.get_double("layer_norm_epsilon", c.epsilon, 1e-12, 1);
  const std::string projection = config.get_string("feed_forward_proj", found.feed_forward);
  require(projection == "gated-gelu", Status::data,
          "{}: feed_forward_proj is '{}', expected 'gated-gelu' (T5 v1.1)", config.file().string(),
          projection);
  // Otherwise t5_bucket would divide by the logarithm of 1 or of less.
  require(c.max_distance > c.num_buckets / 4, Status::data,
          "{}: relative_attention_max_distance is {}, expected more than a quarter of the {} "
          "relative_attention_num_buckets",
          config.file().string(), c.max_distance, c.num_buckets);
  return c;
}

std::int64_t T5Config::encoded_tokens(std::span<const std::int32_t> ids) const {
  constexpr std::int32_t pad = 0;
  std::size_t count = ids.size();
  while (umt5 && count > 1 && ids[count - 1] == pad) --count;
  return static_cast<std::int64_t>(count);
}

std::int64_t t5_bucket(std::int64_t relative, std::int64_t buckets, std::int64_t max_distance) {
  const std::int64_t half = buckets / 2, exact = half / 2;
  const std::int64_t base = relative > 0 ? half : 0, distance = std::abs(relative);
  if (distance < exact) return base + distance;
  const float ratio =
      std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto further = static_cast<std::int64_t>(ratio * static_cast<float>(half - exact));
  return base + std::min(half - 1, exact + further);
}

}  // namespace reelmesh
