// Loads STDiT's weights from a checkpoint.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "models/opensora/transformer.hpp"

namespace reelmesh {
namespace {

// A weight [out, in] in host memory, which the result keeps.
ops::WeightRows rows_of(const Tensor& weight, const Numerics& numerics) {
  const std::int64_t in = weight.shape(1);
  const auto read = [weight, in](std::int64_t first, std::int64_t count, void* into,
                                 std::int64_t stride) {
    const auto size = static_cast<std::size_t>(in * size_of(weight.dtype()));
    for (std::int64_t row = 0; row < count; ++row) {
      std::memcpy(static_cast<std::byte*>(into) + row * stride * size_of(weight.dtype()),
                  weight.rows(first + row, 1).raw(), size);
    }
  };
  return {in, weight.shape(0), weight.dtype(), read, weight.device(), numerics};
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
  bool in_memory;  // transposed weights: WeightPlacement other than in the file

  ops::Linear linear(WeightStream& stream, const std::string& name, std::int64_t in,
                     std::int64_t out) const {
    const LinearParameters layer = linear_parameters(weights, {name}, in, out, dtype);
    return stream.add(layer.weight, layer.bias);
  }
  ops::Linear linear(const std::string& name, std::int64_t in, std::int64_t out) const {
    return linear(step, name, in, out);
  }

  LinearParameters qkv_rows(const std::string& name, std::int64_t first, std::int64_t count) const {
    const std::int64_t d = config.hidden;
    weights.ask(name + ".qkv.bias", {3 * d});
    weights.ask(name + ".qkv.weight", {3 * d, d});
    const auto read = [weights = weights, dtype = dtype, name, d, first](
                          std::int64_t begin, std::int64_t n, void* into, std::int64_t stride) {
      weights.read_rows(name + ".qkv.weight", {3 * d, d}, first + begin, n, dtype, into, stride);
    };
    return {{d, count, dtype, read, weights.device(), weights.numerics()},
            weights.load_rows(name + ".qkv.bias", {3 * d}, first, count, dtype)};
  }

  // The file stores queries, keys and values as one layer.
  Attention attention(const std::string& name) const {
    const std::int64_t d = config.hidden;
    const auto add = [&](const LinearParameters& rows) { return step.add(rows.weight, rows.bias); };
    Attention layer;
    layer.query = add(qkv_rows(name, 0, d));
    layer.key_value = add(qkv_rows(name, d, 2 * d));
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

  // The product that gives the gradient of a layer's input.
  ops::Linear backward(WeightStream& stream, const ops::Linear& layer,
                       const LinearParameters& parameters) const {
    return weights.device().is_cuda() ? stream.again(layer).backward()
                                      : stream.add(transposed_weight(parameters, in_memory), {});
  }
  ops::Linear backward(WeightStream& stream, const ops::Linear& layer, const std::string& name,
                       std::int64_t in, std::int64_t out) const {
    return backward(stream, layer, linear_parameters(weights, {name}, in, out, dtype, false));
  }
  // The same of a layer that no stream has.
  ops::Linear kept_backward(const ops::Linear& layer, const std::string& name, std::int64_t in,
                            std::int64_t out) const {
    if (weights.device().is_cuda()) return layer.backward();
    return ops::Linear(
        transposed_weight(linear_parameters(weights, {name}, in, out, dtype, false), in_memory));
  }

  // Layers of the backward pass, in the order in which it uses them: the block is computed again,
  // then come its parts in reverse.
  void attention_again(Attention& layer) const {
    layer.backward.query_again = step.again(layer.query);
    layer.backward.key_value_again = step.again(layer.key_value);
    layer.backward.out_again = step.again(layer.out);
  }
  void text_and_mlp_again(Block& block) const {
    block.text.backward.query_again = step.again(block.text.query);
    block.text.backward.out_again = step.again(block.text.out);
    block.mlp_backward.up_again = step.again(block.up);
    block.mlp_backward.down_again = step.again(block.down);
  }
  void attention_backward(const std::string& name, Attention& layer) const {
    const std::int64_t d = config.hidden;
    layer.backward.out = backward(step, layer.out, name + ".proj", d, d);
    layer.backward.key_value = backward(step, layer.key_value, qkv_rows(name, d, 2 * d));
    layer.backward.query = backward(step, layer.query, qkv_rows(name, 0, d));
  }
  void text_and_mlp_backward(const std::string& name, Block& block) const {
    const std::int64_t d = config.hidden, hidden = config.mlp_hidden;
    const std::string text = name + ".cross_attn.";
    block.mlp_backward.down = backward(step, block.down, name + ".mlp.fc2", hidden, d);
    block.mlp_backward.up = backward(step, block.up, name + ".mlp.fc1", d, hidden);
    block.text.backward.out = backward(step, block.text.out, text + "proj", d, d);
    block.text.backward.query = backward(step, block.text.query, text + "q_linear", d, d);
    block.text.backward.key_value =
        backward(texts, block.text.key_value, text + "kv_linear", d, 2 * d);
  }
  void pair_backward(std::int64_t i, Pair& pair) const {
    attention_again(pair.spatial.attention);
    if (config.kind == STDiTConfig::Kind::v3) {
      const std::string spatial = fmt::format("spatial_blocks.{}", i);
      const std::string temporal = fmt::format("temporal_blocks.{}", i);
      text_and_mlp_again(pair.spatial);
      attention_again(pair.temporal.attention);
      text_and_mlp_again(pair.temporal);
      text_and_mlp_backward(temporal, pair.temporal);
      attention_backward(temporal + ".attn", pair.temporal.attention);
      text_and_mlp_backward(spatial, pair.spatial);
      attention_backward(spatial + ".attn", pair.spatial.attention);
    } else {
      const std::string block = fmt::format("blocks.{}", i);
      attention_again(pair.temporal.attention);
      text_and_mlp_again(pair.spatial);
      text_and_mlp_backward(block, pair.spatial);
      attention_backward(block + ".attn_temp", pair.temporal.attention);
      attention_backward(block + ".attn", pair.spatial.attention);
    }
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
             const WeightPlacement& placement, bool trains_weights)
    : trains_weights_(trains_weights),
      config_(c),
      dtype_(dtype),
      device_(weights.device()),
      numerics_(weights.numerics()),
      scale_(1.0F / std::sqrt(static_cast<float>(c.head_channels()))),
      ones_(Tensor::empty({c.hidden}, DType::float32, device_.host())),
      zeros_(Tensor::zeros({c.hidden}, DType::float32, device_)) {
  const std::int64_t d = c.hidden;
  if (!device_.only_shapes) std::ranges::fill(ones_.span<float>(), 1.0F);
  ones_ = ones_.on(device_);
  const bool v3 = c.kind == STDiTConfig::Kind::v3;
  WeightStream step(placement), texts(placement);
  capturable_ = step.capturable();
  const Loader load{weights, config_, dtype, step, texts, placement.residence != Residence::host};
  caption1_ = load.linear(texts, "y_embedder.y_proj.fc1", c.text_channels, d);
  caption2_ = load.linear(texts, "y_embedder.y_proj.fc2", d, d);
  null_caption_ =
      weights.load("y_embedder.y_embedding", {c.max_text_tokens, c.text_channels}, dtype);
  // What is not in the blocks stays, so that a step without them fetches nothing.
  time1_ = load_linear(weights, "t_embedder.mlp.0", number_channels, d, dtype);
  time2_ = load_linear(weights, "t_embedder.mlp.2", d, d, dtype);
  if (v3) {
    fps1_ = load_linear(weights, "fps_embedder.mlp.0", number_channels, d, dtype);
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
  for (std::int64_t i = c.layers - 1; trains_weights && i >= 0; --i) {
    load.pair_backward(i, pairs_[static_cast<std::size_t>(i)]);
  }
  out_table_ = weights.load("final_layer.scale_shift_table", {2, d}, dtype);
  const std::int64_t features = c.patch.rows * c.patch.columns * c.out_channels();
  const Tensor out = channel_first(weights.load("final_layer.linear.weight", {features, d}, dtype),
                                   c.out_channels());
  out_ = ops::Linear(
      out,
      channel_first(weights.load("final_layer.linear.bias", {features}, dtype), c.out_channels()),
      numerics_);
  if (!trains_weights) return;
  caption2_backward_ = load.backward(texts, caption2_, "y_embedder.y_proj.fc2", d, d);
  time2_backward_ = load.kept_backward(time2_, "t_embedder.mlp.2", d, d);
  time_block_backward_ = load.kept_backward(time_block_, "t_block.1", d, 6 * d);
  if (v3) fps2_backward_ = load.kept_backward(fps2_, "fps_embedder.mlp.2", d, d);
  out_backward_ =
      device_.is_cuda() ? out_.backward() : ops::Linear(ops::transposed(rows_of(out, numerics_)));
}

}  // namespace reelmesh
