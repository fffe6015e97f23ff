#include "models/opensora/transformer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/trace.hpp"
#include "ops/attention.hpp"

namespace reelmesh {
namespace {

constexpr float norm_eps = 1e-6F;

// Rows of a block's modulation table.
enum Chunk { attention_shift, attention_scale, attention_gate, mlp_shift, mlp_scale, mlp_gate };

// The reference's features of a patch have the channel last, ops::unpatchify has it first: rows of
// the last layer change places. x: [row, …].
Tensor channel_first(const Tensor& x, std::int64_t channels) {
  const std::int64_t rows = x.shape(0), pixels = rows / channels;
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t into = row % channels * pixels + row / channels;
    std::memcpy(out.rows(into, 1).raw(), x.rows(row, 1).raw(),
                static_cast<std::size_t>(x.bytes() / rows));
  }
  return out;
}

// [frame, channel, row, column] with so many rows and columns: cut off, or filled up with zeros.
Tensor resized(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  if (x.shape(2) == rows && x.shape(3) == columns) return x;
  Tensor out = Tensor::zeros({x.shape(0), x.shape(1), rows, columns}, DType::float32);
  for (std::int64_t image = 0; image < x.shape(0) * x.shape(1); ++image) {
    for (std::int64_t row = 0; row < std::min(rows, x.shape(2)); ++row) {
      std::copy_n(x.data<float>() + (image * x.shape(2) + row) * x.shape(3),
                  std::min(columns, x.shape(3)),
                  out.data<float>() + (image * rows + row) * columns);
    }
  }
  return out;
}

Tensor attend(const Tensor& queries, const Tensor& keys_values, float scale) {
  ops::Attention attention(queries, scale);
  attention.add(keys_values);
  return attention.finish();
}

// An attention for each frame. queries: [frame, token, batch, 1, head, channel], keys_values:
// [frame, token, batch, 2, head, channel] → as queries.
Tensor attend_in_frames(const Tensor& queries, const Tensor& keys_values, float scale) {
  Tensor out = Tensor::empty(queries.shape(), queries.dtype());
  if (out.empty()) return out;
  const Shape& s = queries.shape();
  for (std::int64_t frame = 0; frame < s[0]; ++frame) {
    const Tensor attended =
        attend(queries.rows(frame, 1).reshape({s[1], s[2], s[4], s[5]}),
               keys_values.rows(frame, 1).reshape({s[1], s[2], 2, s[4], s[5]}), scale);
    std::memcpy(out.rows(frame, 1).raw(), attended.raw(),
                static_cast<std::size_t>(attended.bytes()));
  }
  return out;
}

Tensor sum(const Tensor& a, const Tensor& b) {
  Tensor out = a.clone();
  ops::add(out, b);
  return out;
}

}  // namespace

// Queries, keys and values are one layer in the file.
STDiT::Attention STDiT::load_attention(const Checkpoint& weights, const std::string& name) const {
  const std::int64_t d = config_.hidden;
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    // Read while they are packed: plain copies would leave holes in memory.
    const auto read = [&](std::int64_t begin, std::int64_t n, void* into, std::int64_t stride) {
      weights.read_rows(name + ".qkv.weight", {3 * d, d}, first + begin, n, dtype_, into, stride);
    };
    return ops::Linear(ops::WeightRows{d, count, dtype_, read},
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
      scale_(1.0F / std::sqrt(static_cast<float>(c.head_channels()))),
      ones_(Tensor::empty({c.hidden}, DType::float32)),
      zeros_(Tensor::zeros({c.hidden}, DType::float32)) {
  const std::int64_t d = c.hidden, sinusoid = 256;
  std::ranges::fill(ones_.span<float>(), 1.0F);
  const Shape patch{d, c.in_channels, 1, c.patch.rows, c.patch.columns};
  patch_ = ops::Linear(
      weights.load("x_embedder.proj.weight", patch, dtype).reshape({d, c.patch_features()}),
      weights.load("x_embedder.proj.bias", {d}, dtype));
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
    frequencies_ = weights.load("rope.freqs", {c.head_channels() / 2}, DType::float32);
  }
  out_table_ = weights.load("final_layer.scale_shift_table", {2, d}, dtype);
  const std::int64_t features = c.patch.rows * c.patch.columns * c.out_channels();
  out_ = ops::Linear(
      channel_first(weights.load("final_layer.linear.weight", {features, d}, dtype),
                    c.out_channels()),
      channel_first(weights.load("final_layer.linear.bias", {features}, dtype), c.out_channels()));
}

STDiTContext STDiT::read(const Tensor& text) const {
  const std::int64_t tokens = text.shape(0), d = config_.hidden;
  expect(tokens >= 1 && tokens <= config_.max_text_tokens, "{} tokens of text, expected 1 to {}",
         tokens, config_.max_text_tokens);
  const auto caption = [&](const Tensor& x) {
    return caption2_(caption1_(x, ops::Activation::gelu_tanh));
  };
  // [token, branch, channel]
  const Tensor both = Tensor::empty({tokens, branches, d}, dtype_);
  const std::array<Tensor, branches> captions{caption(null_caption_.rows(0, tokens)),
                                              caption(text)};
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::size_t branch = 0; branch < captions.size(); ++branch) {
      const Tensor row = captions.at(branch).rows(token, 1);
      std::memcpy(both.reshape({tokens * branches, d})
                      .rows(token * branches + static_cast<std::int64_t>(branch), 1)
                      .raw(),
                  row.raw(), static_cast<std::size_t>(row.bytes()));
    }
  }
  STDiTContext context;
  const auto add = [&](const Block& block) {
    context.keys_values.push_back(heads_of(block.text.key_value, both));
  };
  for (const Pair& pair : pairs_) {
    add(pair.spatial);
    if (config_.kind == STDiTConfig::Kind::v3) add(pair.temporal);
  }
  return context;
}

Tensor STDiT::modulated(const Tensor& x, const Tensor& table, int shift, int scale) const {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  ops::modulated_layer_norm(x, ones_, zeros_, norm_eps, {table, shift, scale}, out);
  return out;
}

// x: [token, batch, channel] → [token, batch, 1 or 2, head, channel].
Tensor STDiT::heads_of(const ops::Linear& product, const Tensor& x) const {
  const std::int64_t parts = product.out_features() / config_.hidden;
  return product(x).reshape(
      {x.shape(0), x.shape(1), parts, config_.heads, config_.head_channels()});
}

// x: [token, batch, channel], frames cut → the same.
Tensor STDiT::within_frames(const Attention& layer, const STDiTPlacement& placement,
                            const Tensor& x) const {
  const Tensor q = heads_of(layer.query, x), kv = heads_of(layer.key_value, x);
  if (config_.kind == STDiTConfig::Kind::v3) {
    ops::normalise_and_rotate(q, layer.query_norm, {}, {});
    ops::normalise_and_rotate(kv, layer.key_norm, {}, {});
  }
  const auto [queries, keys_values] = placement.whole_frames(q, kv);
  const Tensor attended = attend_in_frames(queries, keys_values, scale_);
  return layer.out(placement.own_tokens(attended).reshape(x.shape()));
}

// x: [token, batch, channel], places cut → the same. Every place is a sequence of its own.
Tensor STDiT::along_time(const Attention& layer, const STDiTPlacement& placement,
                         const Tensor& x) const {
  const Shape& mine = placement.in_places_;
  const Shape sequences{mine[0], mine[1] * branches, config_.hidden};
  const Tensor q = heads_of(layer.query, x.reshape(sequences));
  const Tensor kv = heads_of(layer.key_value, x.reshape(sequences));
  if (config_.kind == STDiTConfig::Kind::v3) {
    const TimeRotation rotation = time_rotation(frequencies_, mine[0]);
    ops::normalise_and_rotate(q, layer.query_norm, rotation.cosines, rotation.sines);
    ops::normalise_and_rotate(kv, layer.key_norm, rotation.cosines, rotation.sines);
  }
  const Tensor queries =
      q.reshape({mine[0], mine[1] * branches, config_.heads, config_.head_channels()});
  return layer.out(attend(queries, kv, scale_).reshape(x.shape()));
}

void STDiT::attend_to_text(const Block& block, const Tensor& keys_values, const Tensor& x) const {
  const Tensor queries =
      block.text.query(x).reshape({x.shape(0), branches, config_.heads, config_.head_channels()});
  ops::add(x, block.text.out(attend(queries, keys_values, scale_).reshape(x.shape())));
}

void STDiT::feed_forward(const Block& block, const Tensor& table, const Tensor& x) const {
  const Tensor hidden =
      block.up(modulated(x, table, mlp_shift, mlp_scale), ops::Activation::gelu_tanh);
  ops::add_gated(x, block.down(hidden), table, mlp_gate);
}

// x: [token, batch, channel], frames cut, before and after.
Tensor STDiT::run_pair(std::size_t index, const STDiTPlacement& placement, const Tensor& in,
                       const STDiTContext& context, const Tensor& time) const {
  const auto& [spatial, temporal] = pairs_[index];
  const Shape whole{1, 6 * config_.hidden};
  const Tensor table = sum(spatial.table.reshape(whole), time);
  const Tensor within = within_frames(spatial.attention, placement,
                                      modulated(in, table, attention_shift, attention_scale));
  ops::add_gated(in, within, table, attention_gate);

  const Tensor x = placement.to_places(in);
  if (config_.kind == STDiTConfig::Kind::v3) {
    attend_to_text(spatial, context.keys_values[2 * index], x);
    feed_forward(spatial, table, x);
    const Tensor second = sum(temporal.table.reshape(whole), time);
    const Tensor along = along_time(temporal.attention, placement,
                                    modulated(x, second, attention_shift, attention_scale));
    ops::add_gated(x, along, second, attention_gate);
    attend_to_text(temporal, context.keys_values[2 * index + 1], x);
    feed_forward(temporal, second, x);
  } else {
    // The stream itself, neither normalised nor modulated; the first block alone is told the time.
    Tensor timed = x;
    if (index == 0) {
      timed = x.clone();
      const Shape& mine = placement.in_places_;
      ops::add_table(timed.reshape({mine[0], mine[1] * branches, config_.hidden}),
                     placement.times_);
    }
    ops::add_gated(x, along_time(temporal.attention, placement, timed), table, attention_gate);
    attend_to_text(spatial, context.keys_values[index], x);
    feed_forward(spatial, table, x);
  }
  return placement.to_frames(x);
}

std::vector<Tensor> STDiT::operator()(const STDiTPlacement& placement, const Tensor& latents,
                                      const STDiTContext& context, double timestep) const {
  const std::int64_t d = config_.hidden;
  const std::int64_t frames = placement.frames(), places = placement.places();
  Tensor time = time2_(time1_(number_embedding(timestep).to(dtype_), ops::Activation::silu));
  if (config_.kind == STDiTConfig::Kind::v3) {
    ops::add(time, fps2_(fps1_(number_embedding(placement.clip().fps).to(dtype_),
                               ops::Activation::silu)));
  }
  const Tensor block_time = time_block_(ops::silu(time));

  const auto even = [](std::int64_t n, std::int64_t patch) {
    return (n + patch - 1) / patch * patch;
  };
  const Tensor filled = resized(latents, even(latents.shape(2), config_.patch.rows),
                                even(latents.shape(3), config_.patch.columns));
  const Tensor tokens = patch_(ops::patchify(filled, config_.patch, dtype_));
  Tensor x = Tensor::empty({frames * places, branches, d}, dtype_);
  ops::repeat_for_batch(tokens, x);
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    ops::add_table(x.rows(frame * places, places), placement.positions_);
  }
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope("transformer_block", trace::Level::layers);
    x = run_pair(i, placement, x, context, block_time);
  }

  const Tensor table = out_table_.clone();
  for (std::int64_t chunk = 0; chunk < 2; ++chunk) ops::add(table.rows(chunk, 1), time);
  const Tensor features = out_(modulated(x, table.reshape({1, 2 * d}), 0, 1));
  Shape extents = filled.shape();
  extents[1] = config_.out_channels();
  std::vector<Tensor> predictions;
  for (std::int64_t branch = 0; branch < branches; ++branch) {
    predictions.push_back(resized(ops::unpatchify(features, branch, config_.patch, extents),
                                  latents.shape(2), latents.shape(3)));
  }
  return predictions;
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
