#include "models/wan/transformer.hpp"

#include <algorithm>
#include <cmath>

#include "base/interruption.hpp"
#include "base/trace.hpp"
#include "models/common/residual.hpp"
#include "ops/attention.hpp"
#include "ops/norm.hpp"

namespace reelmesh {
namespace {

// Chunks of a block's table.
enum WanChunk {
  attention_shift_chunk,
  attention_scale_chunk,
  attention_gate_chunk,
  hidden_shift_chunk,
  hidden_scale_chunk,
  hidden_gate_chunk,
  wan_chunks
};

}  // namespace

WanPlacement::WanPlacement(const WanTransformer& transformer, const comm::Group& group,
                           const Layout& grid, std::int64_t batch, int ring)
    : group_(group),
      grid_(grid),
      batch_(batch),
      attend_(group, {grid},
              {batch, transformer.config().heads, transformer.config().head_channels, ring},
              transformer.dtype(), transformer.device(), transformer.numerics()),
      rotary_(wan_rotary_tables(transformer.config(), own_box(grid, group),
                                transformer.device().host())) {
  const WanConfig& config = transformer.config();
  rotary_ = {rotary_.cosines.on(transformer.device()), rotary_.sines.on(transformer.device())};
  const ops::AttentionShape to_text{.dtype = transformer.dtype(),
                                    .batch = batch,
                                    .heads = config.heads,
                                    .channels = config.head_channels,
                                    .queries = tokens(),
                                    .keys = WanConfig::text_tokens};
  const std::size_t shapes = tokens() > 0 ? 1 : 0;
  prepare_attend(group, transformer.device(), to_text.dtype, to_text.keys, to_text.channels,
                 {&to_text, shapes}, transformer.numerics());
}

WanTransformer::WanTransformer(const Checkpoint& weights, const WanConfig& c, DType dtype,
                               const WeightPlacement& placement)
    : config_(c),
      dtype_(dtype),
      device_(weights.device()),
      numerics_(weights.numerics()),
      eps_(static_cast<float>(c.norm_eps)),
      scale_(1.0F / std::sqrt(static_cast<float>(c.head_channels))),
      ones_(Tensor::empty({c.channels()}, DType::float32, device_.host())),
      zeros_(Tensor::zeros({c.channels()}, DType::float32, device_)) {
  const std::int64_t d = c.channels();
  if (!device_.only_shapes) std::ranges::fill(ones_.span<float>(), 1.0F);
  ones_ = ones_.on(device_);
  // Layers that pass through a stream are made in the order in which they are used; those that only
  // the texts pass belong to another one. The small ones before and after the blocks stay, so that
  // a step without the blocks fetches nothing.
  WeightStream step(placement), texts(placement);
  capturable_ = step.capturable();
  const auto linears = [&](WeightStream& stream, const std::vector<std::string>& names,
                           std::int64_t in, std::int64_t out) {
    const LinearParameters layer = linear_parameters(weights, names, in, out, dtype);
    return stream.add(layer.weight, layer.bias);
  };
  const auto linear = [&](WeightStream& stream, const std::string& name, std::int64_t in,
                          std::int64_t out) { return linears(stream, {name}, in, out); };
  const auto norm = [&](const std::string& name) {
    return weights.load(name + ".weight", {d}, dtype).to(DType::float32);
  };
  const std::string condition = "condition_embedder.";
  text1_ = linear(texts, condition + "text_embedder.linear_1", c.text_channels, d);
  text2_ = linear(texts, condition + "text_embedder.linear_2", d, d);
  time1_ = load_linear(weights, condition + "time_embedder.linear_1", c.time_features, d,
                       DType::float32);
  time2_ = load_linear(weights, condition + "time_embedder.linear_2", d, d, DType::float32);
  time_projection_ = load_linear(weights, condition + "time_proj", d, wan_chunks * d, dtype);
  const std::int64_t features = c.in_channels * c.patch_pixels();
  patch_ = ops::Linear(weights
                           .load("patch_embedding.weight",
                                 {d, c.in_channels, 1, c.patch.rows, c.patch.columns}, dtype)
                           .reshape({d, features}),
                       weights.load("patch_embedding.bias", {d}, dtype), numerics_);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("blocks.{}.", i);
    Block& block = blocks_.emplace_back();
    block.table = weights.load(name + "scale_shift_table", {1, wan_chunks, d}, DType::float32)
                      .reshape({1, wan_chunks * d});
    const auto attention = [&](const std::string& layer, WeightStream& keys) {
      Attention result;
      result.query = linear(step, layer + "to_q", d, d);
      result.key_value = linears(keys, {layer + "to_k", layer + "to_v"}, d, d);
      result.out = linear(step, layer + "to_out.0", d, d);
      result.query_norm = norm(layer + "norm_q");
      result.key_norm = norm(layer + "norm_k");
      return result;
    };
    block.self = attention(name + "attn1.", step);
    block.text_norm = load_affine(weights, name + "norm2", d, DType::float32);
    block.text = attention(name + "attn2.", texts);
    block.up = linear(step, name + "ffn.net.0.proj", d, c.hidden_channels);
    block.down = linear(step, name + "ffn.net.2", c.hidden_channels, d);
  }
  out_table_ = weights.load("scale_shift_table", {1, 2, d}, DType::float32).reshape({2, d});
  const std::int64_t out_features = c.out_channels * c.patch_pixels();
  const auto loaded = [&](const std::string& name, const Shape& shape) {
    return channel_first(weights.load(name, shape, dtype), c.out_channels);
  };
  out_ = ops::Linear(loaded("proj_out.weight", {out_features, d}),
                     loaded("proj_out.bias", {out_features}), numerics_);
}

Tensor WanTransformer::embed(double timestep) const {
  return wan_sinusoid(timestep, config_.time_features, device_.host()).on(device_);
}

// [1, channel] of dtype_, rounded once.
Tensor WanTransformer::time_embedding(const Tensor& sinusoid) const {
  return time2_.with_all_rows(time1_.with_all_rows(sinusoid, ops::Activation::silu)).to(dtype_);
}

// Shift and scale of the last norm, float32 [1, 2·channel].
Tensor WanTransformer::out_table(const Tensor& time) const {
  Tensor table = out_table_.clone();
  const Tensor added = time.to(DType::float32);
  for (std::int64_t chunk = 0; chunk < 2; ++chunk) {
    Tensor row = table.rows(chunk, 1);
    ops::add(row, added);
  }
  return table.reshape({1, 2 * config_.channels()});
}

// The products of x as [token, batch, 1 or 2, head, channel], the first part normalised over all
// heads and rotated.
Tensor WanTransformer::normed_heads(const ops::Linear& product, const Tensor& x, const Tensor& norm,
                                    const WanRotaryTables& rotary, std::int64_t all_rows) const {
  const std::int64_t parts = product.out_features() / config_.channels();
  Tensor heads =
      product(x, ops::Activation::none, all_rows)
          .reshape({x.shape(0), x.shape(1), parts, config_.heads, config_.head_channels});
  ops::norm_together_and_rotate(heads, norm, eps_, rotary.cosines, rotary.sines);
  return heads;
}

WanContext WanTransformer::encode_context(const Tensor& text) const {
  constexpr std::int64_t rows = WanConfig::text_tokens;
  const std::int64_t batch = text.shape(1);
  expect(text.shape(0) <= rows && text.shape(2) == config_.text_channels,
         "text {} for a model that takes {} rows of {} channels", text.shape(), rows,
         config_.text_channels);
  Tensor padded = Tensor::zeros({rows, batch, config_.text_channels}, dtype_, device_);
  padded.rows(0, text.shape(0)).copy_from(text);
  const Tensor embedded =
      text2_(text1_(padded, ops::Activation::gelu_tanh, rows), ops::Activation::none, rows);
  WanContext context;
  for (const Block& block : blocks_) {
    context.push_back(normed_heads(block.text.key_value, embedded, block.text.key_norm, {}, rows));
  }
  return context;
}

Tensor WanTransformer::self_attention(const Block& block, const WanPlacement& placement,
                                      const Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  const Tensor q = normed_heads(block.self.query, x, block.self.query_norm, placement.rotary_, all);
  const auto keys_values = [&] {
    return normed_heads(block.self.key_value, x, block.self.key_norm, placement.rotary_, all);
  };
  const Tensor attended =
      placement.attend_(q.reshape({x.shape(0), x.shape(1), config_.heads, config_.head_channels}),
                        keys_values, scale_);
  return block.self.out(attended.reshape(x.shape()), ops::Activation::none, all);
}

// Needs no other rank: the text is context, of which each rank has all keys.
Tensor WanTransformer::text_attention(const Block& block, const WanPlacement& placement,
                                      const Tensor& keys_values, const Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  const Tensor q = normed_heads(block.text.query, x, block.text.query_norm, {}, all);
  const Tensor attended =
      ops::attend(q.reshape({x.shape(0), x.shape(1), config_.heads, config_.head_channels}),
                  keys_values, scale_, 1, numerics_);
  return block.text.out(attended.reshape(x.shape()), ops::Activation::none, all);
}

WanTransformer::Modulated WanTransformer::run_block(const Block& block, const Block* next,
                                                    const WanPlacement& placement, Tensor& x,
                                                    const Modulated& input,
                                                    const Tensor& keys_values,
                                                    const Tensor& six) const {
  const std::int64_t all = placement.all_tokens();
  ops::add_gated(x, self_attention(block, placement, input.tokens), input.table,
                 attention_gate_chunk);
  interruption_point();
  ops::add(x,
           text_attention(block, placement, keys_values,
                          ops::layer_norm(x, block.text_norm.weight, block.text_norm.bias, eps_)));

  Tensor normed = Tensor::empty(x.shape(), x.dtype(), x.device());
  ops::modulated_layer_norm(x, ones_, zeros_, eps_,
                            {input.table, hidden_shift_chunk, hidden_scale_chunk, {}}, normed);
  Tensor hidden = block.up(normed, ops::Activation::gelu_tanh, all);
  normed = {};
  const Tensor change = block.down(hidden, ops::Activation::none, all);
  hidden = {};
  if (next == nullptr) {
    ops::add_gated(x, change, input.table, hidden_gate_chunk);
    return {};
  }
  Modulated result{next->table.clone(), Tensor::empty(x.shape(), x.dtype(), x.device())};
  ops::add(result.table, six);
  ops::add_gated_and_norm(x, change, {input.table, hidden_gate_chunk, {}}, ones_, zeros_, eps_,
                          {result.table, attention_shift_chunk, attention_scale_chunk, {}},
                          result.tokens);
  return result;
}

std::vector<Tensor> WanTransformer::operator()(const WanPlacement& placement,
                                               std::span<const Tensor> latents,
                                               const WanContext& context, const Tensor& sinusoid,
                                               Blocks blocks, Tensor residual) const {
  const std::int64_t all = placement.all_tokens(), batch = placement.batch_;
  expect(context.size() == blocks_.size(), "text of {} blocks for {}", context.size(),
         blocks_.size());
  const Tensor time = time_embedding(sinusoid);
  std::vector<Tensor> patches;
  for (const Tensor& clip : latents) {
    const Tensor tokens = ops::patchify(clip, config_.patch, dtype_);
    patches.push_back(tokens.reshape({tokens.shape(0), 1, tokens.shape(1)}));
  }
  Tensor x = Tensor::empty({placement.tokens(), batch, config_.channels()}, dtype_, device_);
  ops::repeat_for_batch(patch_(ops::join_batches(patches), ops::Activation::none, all), x);
  before_blocks(blocks, x, residual);
  Tensor six;  // what the timestep adds to all tables, float32 [1, 6·channel]
  Modulated input;
  for (std::size_t i = 0; blocks != Blocks::reuse && i < blocks_.size(); ++i) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope(trace::spans::transformer_block);
    if (i == 0) {
      six = time_projection_.with_all_rows(ops::silu(time)).to(DType::float32);
      input = {blocks_[0].table.clone(), Tensor::empty(x.shape(), dtype_, device_)};
      ops::add(input.table, six);
      ops::modulated_layer_norm(x, ones_, zeros_, eps_,
                                {input.table, attention_shift_chunk, attention_scale_chunk, {}},
                                input.tokens);
    }
    const Block* next = i + 1 < blocks_.size() ? &blocks_[i + 1] : nullptr;
    input = run_block(blocks_[i], next, placement, x, input, context[i], six);
  }
  after_blocks(blocks, x, residual);
  ops::modulated_layer_norm(x, ones_, zeros_, eps_, {out_table(time), 0, 1, {}}, x);
  const Tensor features = out_(x, ops::Activation::none, all);
  Shape shape = latents.front().shape();
  shape[1] = config_.out_channels;
  std::vector<Tensor> predictions;
  for (std::int64_t item = 0; item < batch; ++item) {
    predictions.push_back(ops::unpatchify(features, item, config_.patch, shape));
  }
  return predictions;
}

namespace {

class PreparedWan final : public Denoiser::Prepared {
 public:
  PreparedWan(const WanTransformer& transformer, const DenoiseTask& task,
              std::span<const Conditioning> conditioning)
      : transformer_(transformer),
        placement_(transformer, task.group, task.layout.tokens,
                   std::ssize(conditioning) * task.branches, task.layout.mesh.ring),
        branches_(task.branches) {
    std::vector<Tensor> texts;
    for (const Conditioning& clip : conditioning) texts.push_back(clip.text);
    context_ = transformer.encode_context(ops::join_batches(texts).on(transformer.device()));
    if (task.keeps_residual) {
      residual_ =
          Tensor::zeros({placement_.tokens(), placement_.batch(), transformer.config().channels()},
                        transformer.dtype(), transformer.device());
    }
  }

  std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor& time,
                                       const StepKind& kind) override {
    return transformer_(placement_, latents, context_, time, kind.blocks, residual_);
  }

  Tensor residual(std::int64_t clip) const override {
    return batch_items(residual_, clip * branches_, branches_);
  }
  void set_residual(std::int64_t clip, const Tensor& values) override {
    set_batch_items(residual_, clip * branches_, values);
  }

 private:
  const WanTransformer& transformer_;
  WanPlacement placement_;
  std::int64_t branches_;
  WanContext context_;
  Tensor residual_;  ///< [token, item of the batch, channel], or empty
};

}  // namespace

std::unique_ptr<Denoiser::Prepared> WanTransformer::prepare(
    const DenoiseTask& task, std::span<const Conditioning> conditioning) const {
  return std::make_unique<PreparedWan>(*this, task, conditioning);
}

}  // namespace reelmesh
