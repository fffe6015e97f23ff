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

// Makes layers in the order in which a step uses them. Those that only the texts pass belong to
// another stream.
struct STDiT::Loader {
  const Checkpoint& weights;
  const STDiTConfig& config;
  DType dtype;
  WeightStream& step;
  WeightStream& texts;

  ops::Linear linear(WeightStream& stream, const std::string& name, std::int64_t in,
                     std::int64_t out) const {
    const LinearParameters layer = linear_parameters(weights, {name}, in, out, dtype);
    return stream.add(layer.weight, layer.bias);
  }
  ops::Linear linear(const std::string& name, std::int64_t in, std::int64_t out) const {
    return linear(step, name, in, out);
  }

  // The file stores queries, keys and values as one layer.
  Attention attention(const std::string& name) const {
    const std::int64_t d = config.hidden;
    weights.ask(name + ".qkv.weight", {3 * d, d});
    const auto rows = [&](std::int64_t first, std::int64_t count) {
      const auto read = [weights = weights, dtype = dtype, name, d, first](
                            std::int64_t begin, std::int64_t n, void* into, std::int64_t stride) {
        weights.read_rows(name + ".qkv.weight", {3 * d, d}, first + begin, n, dtype, into, stride);
      };
      return step.add({d, count, dtype, read, weights.device(), weights.numerics()},
                      weights.load_rows(name + ".qkv.bias", {3 * d}, first, count, dtype));
    };
    Attention layer;
    layer.query = rows(0, d);
    layer.key_value = rows(d, 2 * d);
    layer.out = linear(name + ".proj", d, d);
    if (config.kind == STDiTConfig::Kind::v3) {
      const auto norm = [&](const char* which) {
        return weights.load(name + which, {config.head_channels()}, dtype).to(DType::float32);
      };
      layer.query_norm = {norm(".q_norm.weight"), {}, norm_eps};
      layer.key_norm = {norm(".k_norm.weight"), {}, norm_eps};
    }
    return layer;
  }

  // Cross-attention and MLP of a block.
  void text_and_mlp(const std::string& name, Block& block) const {
    const std::int64_t d = config.hidden, hidden = config.mlp_hidden;
    const std::string text = name + ".cross_attn.";
    block.text.query = linear(text + "q_linear", d, d);
    block.text.key_value = linear(texts, text + "kv_linear", d, 2 * d);
    block.text.out = linear(text + "proj", d, d);
    block.up = linear(name + ".mlp.fc1", d, hidden);
    block.down = linear(name + ".mlp.fc2", hidden, d);
  }

  Block block(const std::string& name) const {
    Block block;
    block.table = weights.load(name + ".scale_shift_table", {6, config.hidden}, dtype);
    block.attention = attention(name + ".attn");
    text_and_mlp(name, block);
    return block;
  }

  // v1 has both kinds of attention in one block.
  Pair pair(const std::string& name) const {
    Pair pair;
    pair.spatial.table = weights.load(name + ".scale_shift_table", {6, config.hidden}, dtype);
    pair.spatial.attention = attention(name + ".attn");
    pair.temporal.attention = attention(name + ".attn_temp");
    text_and_mlp(name, pair.spatial);
    return pair;
  }
};

STDiT::STDiT(const Checkpoint& weights, const STDiTConfig& c, DType dtype,
             const WeightPlacement& placement)
    : config_(c),
      dtype_(dtype),
      device_(weights.device()),
      numerics_(weights.numerics()),
      scale_(1.0F / std::sqrt(static_cast<float>(c.head_channels()))),
      ones_(Tensor::empty({c.hidden}, DType::float32, device_.host())),
      zeros_(Tensor::zeros({c.hidden}, DType::float32, device_)) {
  const std::int64_t d = c.hidden, sinusoid = 256;
  if (!device_.only_shapes) std::ranges::fill(ones_.span<float>(), 1.0F);
  ones_ = ones_.on(device_);
  const bool v3 = c.kind == STDiTConfig::Kind::v3;
  WeightStream step(placement), texts(placement);
  capturable_ = step.capturable();
  const Loader load{weights, config_, dtype, step, texts};
  caption1_ = load.linear(texts, "y_embedder.y_proj.fc1", c.text_channels, d);
  caption2_ = load.linear(texts, "y_embedder.y_proj.fc2", d, d);
  null_caption_ =
      weights.load("y_embedder.y_embedding", {c.max_text_tokens, c.text_channels}, dtype);
  // What is not in the blocks stays, so that a step without them fetches nothing.
  time1_ = load_linear(weights, "t_embedder.mlp.0", sinusoid, d, dtype);
  time2_ = load_linear(weights, "t_embedder.mlp.2", d, d, dtype);
  if (v3) {
    fps1_ = load_linear(weights, "fps_embedder.mlp.0", sinusoid, d, dtype);
    fps2_ = load_linear(weights, "fps_embedder.mlp.2", d, d, dtype);
    frequencies_ =
        weights.load("rope.freqs", {c.head_channels() / 2}, DType::float32).on(device_.host());
  }
  time_block_ = load_linear(weights, "t_block.1", d, 6 * d, dtype);
  const Shape patch{d, c.in_channels, 1, c.patch.rows, c.patch.columns};
  patch_ = ops::Linear(
      weights.load("x_embedder.proj.weight", patch, dtype).reshape({d, c.patch_features()}),
      weights.load("x_embedder.proj.bias", {d}, dtype), numerics_);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    if (v3) {
      Block spatial = load.block(fmt::format("spatial_blocks.{}", i));
      pairs_.push_back({std::move(spatial), load.block(fmt::format("temporal_blocks.{}", i))});
    } else {
      pairs_.push_back(load.pair(fmt::format("blocks.{}", i)));
    }
  }
  out_table_ = weights.load("final_layer.scale_shift_table", {2, d}, dtype);
  const std::int64_t features = c.patch.rows * c.patch.columns * c.out_channels();
  out_ = ops::Linear(
      channel_first(weights.load("final_layer.linear.weight", {features, d}, dtype),
                    c.out_channels()),
      channel_first(weights.load("final_layer.linear.bias", {features}, dtype), c.out_channels()),
      numerics_);
}

}  // namespace reelmesh
