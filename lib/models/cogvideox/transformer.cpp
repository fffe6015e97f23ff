#include "models/cogvideox/transformer.hpp"

#include <cmath>

#include "base/interruption.hpp"
#include "base/trace.hpp"
#include "layout/relayout.hpp"
#include "models/common/residual.hpp"
#include "ops/norm_backward.hpp"

namespace reelmesh {

CogVideoXPlacement::CogVideoXPlacement(const CogVideoXTransformer& transformer,
                                       const comm::Group& group, const Layout& grid,
                                       const Layout& text, std::int64_t batch, int ring)
    : group_(group),
      grid_(grid),
      text_(text),
      batch_(batch),
      attend_(group, {text, grid},
              {batch, transformer.config().heads, transformer.config().head_channels, ring},
              transformer.dtype(), transformer.device(), transformer.numerics()) {
  const CogVideoXConfig& config = transformer.config();
  const Device device = transformer.device();
  const Box& box = own_box(grid, group);
  if (config.rotary) {
    rotary_ = rotary_positions(config, grid.global(), box, device.host());
    rotary_ = {rotary_.cosines.on(device), rotary_.sines.on(device)};
  } else {
    sincos_table_ = sincos_positions(config, box, device.host()).on(device);
  }
  if (config.learned_positions) {
    expect(
        text.global() == Shape{config.max_text_tokens} && grid.global() == config.sample_tokens(),
        "{} text tokens and video tokens {} for learned positions", text.global(), grid.global());
    learned_table_ = transformer.own_learned_positions(own_box(text, group), box);
  }
}

CogVideoXTransformer::CogVideoXTransformer(const Checkpoint& weights, const CogVideoXConfig& c,
                                           DType dtype, const WeightPlacement& placement,
                                           std::span<const BlockAdapters> adapters,
                                           bool trains_weights)
    : config_(c), dtype_(dtype), device_(weights.device()), numerics_(weights.numerics()) {
  if (c.learned_positions) {
    learned_positions_ = weights;
    weights.ask(learned_positions_tensor,
                {1, c.max_text_tokens + numel(c.sample_tokens()), c.channels()});
  }
  const std::int64_t d = c.channels(), t = c.time_channels, features = c.patch_features();
  // Layers that pass through the stream are made in the order in which a step uses them. The small
  // ones before and after the blocks stay, so that a step without the blocks fetches nothing.
  WeightStream stream(placement);
  capturable_ = stream.capturable();
  const auto linears = [&](const std::vector<std::string>& names, std::int64_t in,
                           std::int64_t out) {
    const LinearParameters layer = linear_parameters(weights, names, in, out, dtype);
    return stream.add(layer.weight, layer.bias);
  };
  const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    return linears({name}, in, out);
  };
  time1_ = load_linear(weights, "time_embedding.linear_1", d, t, dtype);
  time2_ = load_linear(weights, "time_embedding.linear_2", t, t, dtype);
  if (c.ofs_channels > 0) {
    // The same in every call, so that only the result is kept.
    const ops::Linear ofs1 =
        load_linear(weights, "ofs_embedding.linear_1", c.ofs_channels, t, dtype);
    const ops::Linear ofs2 = load_linear(weights, "ofs_embedding.linear_2", t, t, dtype);
    ofs_ = ofs2.with_all_rows(ofs1.with_all_rows(ofs_sinusoid(), ops::Activation::silu));
    if (trains_weights) {
      ofs1_ = ofs1;
      ofs2_ = ofs2;
    }
  }
  text_ = linear("patch_embed.text_proj", c.text_channels, d);
  Shape patch_shape{d, features};
  if (!c.linear_patch) patch_shape = {d, c.in_channels, c.patch.rows, c.patch.columns};
  patch_ = ops::Linear(
      weights.load("patch_embed.proj.weight", patch_shape, dtype).reshape({d, features}),
      weights.load("patch_embed.proj.bias", {d}, dtype), numerics_);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("transformer_blocks.{}.", i);
    Block& block = blocks_.emplace_back();
    block.modulation1 = linear(name + "norm1.linear", t, 6 * d);
    block.norm1 = load_affine(weights, name + "norm1.norm", d, dtype);
    block.query = linear(name + "attn1.to_q", d, d);
    block.key_value = linears({name + "attn1.to_k", name + "attn1.to_v"}, d, d);
    const Affine query = load_affine(weights, name + "attn1.norm_q", c.head_channels, dtype);
    const Affine key = load_affine(weights, name + "attn1.norm_k", c.head_channels, dtype);
    block.query_norm = {query.weight, query.bias, 1e-6F};
    block.key_norm = {key.weight, key.bias, 1e-6F};
    block.out = linear(name + "attn1.to_out.0", d, d);
    block.modulation2 = linear(name + "norm2.linear", t, 6 * d);
    block.norm2 = load_affine(weights, name + "norm2.norm", d, dtype);
    block.up = linear(name + "ff.net.0.proj", d, 4 * d);
    block.down = linear(name + "ff.net.2", 4 * d, d);
    if (!adapters.empty()) block.adapters = adapters[static_cast<std::size_t>(i)];
  }
  // A backward pass goes through the blocks in reverse, and computes each of them again before.
  // Only CPUs need the weights once more, transposed.
  const auto transposed = [&](const std::vector<std::string>& names, std::int64_t in,
                              std::int64_t out) {
    return transposed_weight(linear_parameters(weights, names, in, out, dtype, false),
                             placement.residence != Residence::host);
  };
  const auto backward = [&](const ops::Linear& layer, const std::vector<std::string>& names,
                            std::int64_t in, std::int64_t out) {
    return device_.is_cuda() ? stream.again(layer).backward()
                             : stream.add(transposed(names, in, out), {});
  };
  const bool trained = trains_weights || !adapters.empty();
  for (std::int64_t i = c.layers - 1; trained && i >= 0; --i) {
    const std::string name = fmt::format("transformer_blocks.{}.", i);
    Block& block = blocks_[static_cast<std::size_t>(i)];
    BlockBackward& back = block.backward;
    back.query_again = stream.again(block.query);
    back.key_value_again = stream.again(block.key_value);
    back.out_again = stream.again(block.out);
    back.up_again = stream.again(block.up);
    if (trains_weights) back.down_again = stream.again(block.down);
    back.down = backward(block.down, {name + "ff.net.2"}, 4 * d, d);
    back.up = backward(block.up, {name + "ff.net.0.proj"}, d, 4 * d);
    back.out = backward(block.out, {name + "attn1.to_out.0"}, d, d);
    if (i == 0 && !trains_weights) break;
    back.key_value = backward(block.key_value, {name + "attn1.to_k", name + "attn1.to_v"}, d, d);
    back.query = backward(block.query, {name + "attn1.to_q"}, d, d);
    if (!trains_weights) continue;
    back.modulation2 = backward(block.modulation2, {name + "norm2.linear"}, t, 6 * d);
    back.modulation1 = backward(block.modulation1, {name + "norm1.linear"}, t, 6 * d);
  }
  norm_final_ = load_affine(weights, "norm_final", d, dtype);
  modulation_out_ = load_linear(weights, "norm_out.linear", t, 2 * d, dtype);
  norm_out_ = load_affine(weights, "norm_out.norm", d, dtype);
  const std::int64_t out_features =
      c.out_channels * c.patch.frames * c.patch.rows * c.patch.columns;
  out_ = load_linear(weights, "proj_out", d, out_features, dtype);
  const auto kept_backward = [&](const ops::Linear& layer, const std::string& name, std::int64_t in,
                                 std::int64_t out) {
    return device_.is_cuda() ? layer.backward() : ops::Linear(transposed({name}, in, out));
  };
  if (trained) out_backward_ = kept_backward(out_, "proj_out", d, out_features);
  if (!trains_weights) return;
  modulation_out_backward_ = kept_backward(modulation_out_, "norm_out.linear", t, 2 * d);
  time2_backward_ = kept_backward(time2_, "time_embedding.linear_2", t, t);
  if (c.ofs_channels > 0) ofs2_backward_ = kept_backward(ofs2_, "ofs_embedding.linear_2", t, t);
}

namespace {

// A rank's tokens z: text, then video.
std::int64_t text_tokens(const CogVideoXPlacement& placement) {
  return own_box(placement.text(), placement.group()).numel();
}

Tensor modulated(const Tensor& z, const Affine& norm, float eps, const Tensor& table,
                 const CogVideoXPlacement& placement) {
  Tensor out = Tensor::empty(z.shape(), z.dtype(), z.device());
  ops::modulated_layer_norm(
      z, norm.weight, norm.bias, eps,
      {table, shift_chunk, scale_chunk, {text_tokens(placement), video_chunks}}, out);
  return out;
}

// z += change with the gate of `table`; → z normalised, and modulated with the table `next`.
Tensor added_and_modulated(Tensor& z, const Tensor& change, const Tensor& table, const Affine& norm,
                           float eps, const Tensor& next, const CogVideoXPlacement& placement) {
  Tensor out = Tensor::empty(z.shape(), z.dtype(), z.device());
  const ops::FirstTokens text{text_tokens(placement), video_chunks};
  ops::add_gated_and_norm(z, change, {table, gate_chunk, text}, norm.weight, norm.bias, eps,
                          {next, shift_chunk, scale_chunk, text}, out);
  return out;
}

}  // namespace

Tensor CogVideoXTransformer::hidden_features(const Block& block,
                                             const CogVideoXPlacement& placement,
                                             const Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  if (block.adapters.up == nullptr) return block.up(x, ops::Activation::gelu_tanh, all);
  Tensor hidden = block.up(x, ops::Activation::none, all);
  block.adapters.up->add(block.adapters.up->hidden(x, all), hidden, all);
  return ops::gelu_tanh(hidden);
}

CogVideoXTransformer::Modulated CogVideoXTransformer::run_block(
    const Block& block, const Block* next, const CogVideoXPlacement& placement, Tensor& z,
    const Modulated& input, const Tensor& time, Tensor* second_table) const {
  const auto eps = static_cast<float>(config_.norm_eps);
  const std::int64_t tokens = z.shape(0), batch = z.shape(1), d = config_.channels();
  const std::int64_t all = placement.all_tokens();
  const auto of_tokens = [&](const ops::Linear& product, const Adapter* adapter,
                             const Tensor& from) {
    Tensor result = product(from, ops::Activation::none, all);
    if (adapter != nullptr) adapter->add(adapter->hidden(from, all), result, all);
    return result;
  };
  const auto projected_heads = [&](const ops::Linear& product, const Adapter* adapter,
                                   std::int64_t parts, const ops::HeadNorm& norm) {
    Tensor heads = of_tokens(product, adapter, input.tokens)
                       .reshape({tokens, batch, parts, config_.heads, config_.head_channels});
    ops::normalise_and_rotate(heads, norm, placement.rotary_.cosines, placement.rotary_.sines,
                              text_tokens(placement));
    return heads;
  };
  const BlockAdapters& adapters = block.adapters;
  const Tensor q = projected_heads(block.query, adapters.query, 1, block.query_norm);
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_channels));
  const auto keys_values = [&] {
    return projected_heads(block.key_value, adapters.key_value, 2, block.key_norm);
  };
  const Tensor attended =
      placement
          .attend_(q.reshape({tokens, batch, config_.heads, config_.head_channels}), keys_values,
                   scale)
          .reshape({tokens, batch, d});
  Tensor change = of_tokens(block.out, adapters.out, attended);
  Tensor table = block.modulation2.with_all_rows(time);
  Tensor normed = added_and_modulated(z, change, input.table, block.norm2, eps, table, placement);
  change = {};
  interruption_point();

  Tensor hidden = hidden_features(block, placement, normed);
  normed = {};
  change = of_tokens(block.down, adapters.down, hidden);
  hidden = {};
  if (second_table != nullptr) *second_table = table;
  if (next == nullptr) {
    ops::add_gated(z, change, table, gate_chunk, {text_tokens(placement), video_chunks});
    return {};
  }
  Modulated result{next->modulation1.with_all_rows(time), {}};
  result.tokens = added_and_modulated(z, change, table, next->norm1, eps, result.table, placement);
  return result;
}

Tensor CogVideoXTransformer::embed(double timestep) const {
  return timestep_embedding(static_cast<std::int64_t>(timestep), config_.channels(), config_,
                            device_.host())
      .to(dtype_)
      .on(device_);
}

Tensor CogVideoXTransformer::ofs_sinusoid() const {
  return timestep_embedding(CogVideoXConfig::ofs_value, config_.ofs_channels, config_,
                            device_.host())
      .to(dtype_)
      .on(device_);
}

// Every modulation layer begins with silu of the time embedding: computed once. The whole batch has
// the same timestep.
Tensor CogVideoXTransformer::time_embedding(const Tensor& sinusoid) const {
  Tensor time = time2_.with_all_rows(time1_.with_all_rows(sinusoid, ops::Activation::silu));
  if (!ofs_.empty()) ops::add(time, ofs_);
  return ops::silu(time);
}

Tensor CogVideoXTransformer::patches(const Tensor& latents) const {
  const Tensor tokens = ops::patchify(latents, config_.patch, dtype_);
  return tokens.reshape({tokens.shape(0), 1, tokens.shape(1)});
}

// [token, clip, feature]. The features of a patch are ordered by channel, so that those of the
// image's latents follow those of the noisy ones.
Tensor CogVideoXTransformer::input_patches(std::span<const Tensor> latents,
                                           std::span<const Tensor> images) const {
  std::vector<Tensor> parts;
  for (std::size_t clip = 0; clip < latents.size(); ++clip) {
    parts.push_back(patches(latents[clip]));
    if (!images.empty()) parts.push_back(images[clip]);
  }
  return ops::join_batches(parts).reshape(
      {parts.front().shape(0), std::ssize(latents), config_.patch_features()});
}

Tensor CogVideoXTransformer::own_learned_positions(const Box& text, const Box& video) const {
  return learned_positions(*learned_positions_, config_, text, video, dtype_);
}

namespace {

class PreparedTransformer final : public Denoiser::Prepared {
 public:
  PreparedTransformer(const CogVideoXTransformer& transformer, const DenoiseTask& task,
                      std::span<const Conditioning> conditioning)
      : transformer_(transformer),
        placement_(transformer, task.group, task.layout.tokens, task.layout.text,
                   std::ssize(conditioning) * task.branches, task.layout.mesh.ring),
        branches_(task.branches) {
    const std::int64_t channels = transformer.config().image_channels();
    const Layout latents = task.layout.latents.with_axis(1, channels);
    const Shape& expected = own_box(latents, task.group).extent;
    std::vector<Tensor> texts;
    for (const Conditioning& clip : conditioning) {
      texts.push_back(clip.text);
      if (channels == 0) {
        expect(clip.image.empty(), "latents {} of an image for text to video", clip.image.shape());
        continue;
      }
      expect(clip.image.shape() == expected, "latents {} of an image, expected {}",
             clip.image.shape(), to_string(expected));
      images_.push_back(transformer.patches(clip.image.on(transformer.device())));
    }
    context_ = ops::join_batches(texts).on(transformer.device());
    if (task.keeps_residual) {
      residual_ = Tensor::zeros({own_box(task.layout.tokens, task.group).numel(),
                                 placement_.batch(), transformer.config().channels()},
                                transformer.dtype(), transformer.device());
    }
  }

  std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor& time,
                                       Blocks blocks) override {
    return transformer_(placement_, latents, context_, time, images_, blocks, residual_);
  }

  Tensor residual(std::int64_t clip) const override {
    return batch_items(residual_, clip * branches_, branches_);
  }
  void set_residual(std::int64_t clip, const Tensor& values) override {
    set_batch_items(residual_, clip * branches_, values);
  }

 private:
  const CogVideoXTransformer& transformer_;
  CogVideoXPlacement placement_;
  std::int64_t branches_;
  Tensor context_;
  Tensor residual_;             ///< [token, item of the batch, channel], or empty
  std::vector<Tensor> images_;  ///< patches of the image's latents of each clip, or none
};

}  // namespace

std::unique_ptr<Denoiser::Prepared> CogVideoXTransformer::prepare(
    const DenoiseTask& task, std::span<const Conditioning> conditioning) const {
  return std::make_unique<PreparedTransformer>(*this, task, conditioning);
}

Tensor CogVideoXTransformer::embed_tokens(const CogVideoXPlacement& placement,
                                          std::span<const Tensor> latents, const Tensor& context,
                                          std::span<const Tensor> images, Blocks blocks) const {
  const std::int64_t d = config_.channels(), batch = placement.batch_;
  const Box& text_box = own_box(placement.text_, placement.group_);
  expect(context.shape() == Shape{text_box.numel(), batch, config_.text_channels},
         "context {} for {} text tokens of a batch of {}", context.shape(), text_box.numel(),
         batch);
  expect(images.size() == (config_.takes_image() ? latents.size() : 0),
         "latents of {} images for {} clips of a model with {} channels for them", images.size(),
         latents.size(), config_.image_channels());
  // Without the blocks, the text's tokens are not needed.
  const std::int64_t texts = blocks == Blocks::reuse ? 0 : context.shape(0);
  const std::int64_t tokens = own_box(placement.grid_, placement.group_).numel();
  Tensor z = Tensor::empty({texts + tokens, batch, d}, dtype_, device_);
  // Also on a rank without text tokens: the others may need its share of the weights.
  if (blocks != Blocks::reuse) {
    z.rows(0, texts).copy_from(text_(context, ops::Activation::none, placement.all_text_tokens()));
  }
  Tensor video = z.rows(texts, tokens);
  ops::repeat_for_batch(
      patch_(input_patches(latents, images), ops::Activation::none, placement.all_video_tokens()),
      video);
  if (!config_.rotary) ops::add_table(video, placement.sincos_table_);
  if (config_.learned_positions) {
    ops::add_table(z, placement.learned_table_.rows(context.shape(0) - texts, texts + tokens));
  }
  return z;
}

std::vector<Tensor> CogVideoXTransformer::operator()(const CogVideoXPlacement& placement,
                                                     std::span<const Tensor> latents,
                                                     const Tensor& context, const Tensor& sinusoid,
                                                     std::span<const Tensor> images, Blocks blocks,
                                                     Tensor residual) const {
  const Tensor time = time_embedding(sinusoid);
  Tensor z = embed_tokens(placement, latents, context, images, blocks);
  const std::int64_t tokens = own_box(placement.grid_, placement.group_).numel();
  Tensor video = z.rows(z.shape(0) - tokens, tokens);
  before_blocks(blocks, video, residual);
  const auto eps = static_cast<float>(config_.norm_eps);
  Modulated input;
  for (std::size_t i = 0; blocks != Blocks::reuse && i < blocks_.size(); ++i) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope(trace::spans::transformer_block);
    if (i == 0) {
      input.table = blocks_[0].modulation1.with_all_rows(time);
      input.tokens = modulated(z, blocks_[0].norm1, eps, input.table, placement);
    }
    const Block* next = i + 1 < blocks_.size() ? &blocks_[i + 1] : nullptr;
    input = run_block(blocks_[i], next, placement, z, input, time);
  }

  after_blocks(blocks, video, residual);
  video = ops::layer_norm(video, norm_final_.weight, norm_final_.bias, eps);
  ops::modulated_layer_norm(video, norm_out_.weight, norm_out_.bias, eps,
                            {modulation_out_.with_all_rows(time), 0, 1}, video);
  const Tensor features = out_(video, ops::Activation::none, placement.all_video_tokens());
  std::vector<Tensor> predictions;
  for (std::int64_t item = 0; item < placement.batch_; ++item) {
    predictions.push_back(ops::unpatchify(features, item, config_.patch, latents.front().shape()));
  }
  return predictions;
}

}  // namespace reelmesh
