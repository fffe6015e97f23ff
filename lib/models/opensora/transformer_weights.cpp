// Loads STDiT's weights from a checkpoint.
#include <algorithm>
#include <cmath>

#include "models/opensora/transformer.hpp"

namespace reelmesh {
namespace {

// Reorders the rows of the last layer. In the reference, the channel is the last axis of a patch's
// features; ops::unpatchify expects it first. x: [row, …].
Tensor channel_first(const Tensor& x, std::int64_t channels) {
  const std::int64_t rows = x.shape(0), pixels = rows / channels;
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t into = row % channels * pixels + row / channels;
    out.rows(into, 1).copy_from(x.rows(row, 1));
  }
  return out;
}

}  // namespace

// The file stores queries, keys and values as one layer.
STDiT::Attention STDiT::load_attention(const Checkpoint& weights, const std::string& name) const {
  const std::int64_t d = config_.hidden;
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    // Rows are read during packing: temporary unpacked copies would fragment memory.
    const auto read = [&](std::int64_t begin, std::int64_t n, void* into, std::int64_t stride) {
      weights.read_rows(name + ".qkv.weight", {3 * d, d}, first + begin, n, dtype_, into, stride);
    };
    return ops::Linear(ops::WeightRows{d, count, dtype_, read, device_, numerics_},
                       weights.load_rows(name + ".qkv.bias", {3 * d}, first, count, dtype_));
  };
  Attention layer{
      rows(0, d), rows(d, 2 * d), load_linear(weights, name + ".proj", d, d, dtype_), {}, {}};
  if (config_.kind == STDiTConfig::Kind::v3) {
    const auto norm = [&](const char* which) {
      return weights.load(name + which, {config_.head_channels()}, dtype_).to(DType::float32);
    };
    layer.query_norm = {norm(".q_norm.weight"), {}, norm_eps};
    layer.key_norm = {norm(".k_norm.weight"), {}, norm_eps};
  }
  return layer;
}

STDiT::Block STDiT::load_block(const Checkpoint& weights, const std::string& name) const {
  const std::int64_t d = config_.hidden, hidden = config_.mlp_hidden;
  const std::string text = name + ".cross_attn.";
  return {weights.load(name + ".scale_shift_table", {6, d}, dtype_),
          load_attention(weights, name + ".attn"),
          {load_linear(weights, text + "q_linear", d, d, dtype_),
           load_linear(weights, text + "kv_linear", d, 2 * d, dtype_),
           load_linear(weights, text + "proj", d, d, dtype_),
           {},
           {}},
          load_linear(weights, name + ".mlp.fc1", d, hidden, dtype_),
          load_linear(weights, name + ".mlp.fc2", hidden, d, dtype_)};
}

STDiT::STDiT(const Checkpoint& weights, const STDiTConfig& c, DType dtype)
    : config_(c),
      dtype_(dtype),
      device_(weights.device()),
      numerics_(weights.numerics()),
      scale_(1.0F / std::sqrt(static_cast<float>(c.head_channels()))),
      ones_(Tensor::empty({c.hidden}, DType::float32)),
      zeros_(Tensor::zeros({c.hidden}, DType::float32, device_)) {
  const std::int64_t d = c.hidden, sinusoid = 256;
  std::ranges::fill(ones_.span<float>(), 1.0F);
  ones_ = ones_.on(device_);
  const Shape patch{d, c.in_channels, 1, c.patch.rows, c.patch.columns};
  patch_ = ops::Linear(
      weights.load("x_embedder.proj.weight", patch, dtype).reshape({d, c.patch_features()}),
      weights.load("x_embedder.proj.bias", {d}, dtype), numerics_);
  time1_ = load_linear(weights, "t_embedder.mlp.0", sinusoid, d, dtype);
  time2_ = load_linear(weights, "t_embedder.mlp.2", d, d, dtype);
  time_block_ = load_linear(weights, "t_block.1", d, 6 * d, dtype);
  caption1_ = load_linear(weights, "y_embedder.y_proj.fc1", c.text_channels, d, dtype);
  caption2_ = load_linear(weights, "y_embedder.y_proj.fc2", d, d, dtype);
  null_caption_ =
      weights.load("y_embedder.y_embedding", {c.max_text_tokens, c.text_channels}, dtype);
  const bool v3 = c.kind == STDiTConfig::Kind::v3;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    if (v3) {
      pairs_.push_back({load_block(weights, fmt::format("spatial_blocks.{}", i)),
                        load_block(weights, fmt::format("temporal_blocks.{}", i))});
    } else {
      const std::string name = fmt::format("blocks.{}", i);
      pairs_.push_back({load_block(weights, name), {}});
      pairs_.back().temporal.attention = load_attention(weights, name + ".attn_temp");
    }
  }
  if (v3) {
    fps1_ = load_linear(weights, "fps_embedder.mlp.0", sinusoid, d, dtype);
    fps2_ = load_linear(weights, "fps_embedder.mlp.2", d, d, dtype);
    frequencies_ = weights.load("rope.freqs", {c.head_channels() / 2}, DType::float32).on({});
  }
  out_table_ = weights.load("final_layer.scale_shift_table", {2, d}, dtype);
  const std::int64_t features = c.patch.rows * c.patch.columns * c.out_channels();
  out_ = ops::Linear(
      channel_first(weights.load("final_layer.linear.weight", {features, d}, dtype),
                    c.out_channels()),
      channel_first(weights.load("final_layer.linear.bias", {features}, dtype), c.out_channels()),
      numerics_);
}

std::int64_t STDiT::bytes() const {
  std::int64_t bytes = null_caption_.bytes() + out_table_.bytes();
  for (const ops::Linear* linear :
       {&patch_, &time1_, &time2_, &time_block_, &fps1_, &fps2_, &caption1_, &caption2_, &out_}) {
    bytes += linear->bytes();
  }
  for (const Pair& pair : pairs_) {
    for (const Block* block : {&pair.spatial, &pair.temporal}) {
      bytes += block->table.bytes();
      for (const ops::Linear* linear :
           {&block->attention.query, &block->attention.key_value, &block->attention.out,
            &block->text.query, &block->text.key_value, &block->text.out, &block->up,
            &block->down}) {
        bytes += linear->bytes();
      }
    }
  }
  return bytes;
}

}  // namespace reelmesh
