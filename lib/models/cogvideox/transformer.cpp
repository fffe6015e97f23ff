#include "models/cogvideox/transformer.hpp"

#include <cmath>

#include "base/interruption.hpp"
#include "layout/relayout.hpp"
#include "models/common/residual.hpp"
#include "ops/rows.hpp"

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
              transformer.dtype(), transformer.device(), transformer.numerics()),
      tokens_(group, {text, grid}, transformer.config().head_channels),
      text_tokens_(group, {text}, transformer.config().head_channels),
      video_tokens_(group, {grid}, transformer.config().head_channels) {
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
                                           ModelTraining* training)
    : config_(c), dtype_(dtype), device_(weights.device()), numerics_(weights.numerics()) {
  if (c.learned_positions) {
    learned_positions_ = weights;
    weights.ask(learned_positions_tensor,
                {1, c.max_text_tokens + numel(c.sample_tokens()), c.channels()});
  }
  const std::int64_t d = c.channels(), t = c.time_channels, features = c.patch_features();
  // Layers that are streamed are made in the order in which a step uses them. The small ones before
  // and after the blocks stay, so that a step without the blocks fetches nothing.
  LayerMaker make(weights, dtype, placement, training);
  const auto kept = [&](const std::string& name, std::int64_t in, std::int64_t out,
                        const Shape& stored = {}) {
    return make.linear({name}, in, out, {.residing = LayerMaker::Residing::kept, .stored = stored});
  };
  time1_ = kept("time_embedding.linear_1", d, t);
  time2_ = kept("time_embedding.linear_2", t, t);
  if (c.ofs_channels > 0) {
    ofs_sinusoid_ =
        timestep_embedding(CogVideoXConfig::ofs_value, c.ofs_channels, c, device_.host())
            .to(dtype)
            .on(device_);
    ofs1_ = kept("ofs_embedding.linear_1", c.ofs_channels, t);
    ofs2_ = kept("ofs_embedding.linear_2", t, t);
  }
  text_ = make.linear({"patch_embed.text_proj"}, c.text_channels, d, {});
  Shape patch_shape;
  if (!c.linear_patch) patch_shape = {d, c.in_channels, c.patch.rows, c.patch.columns};
  patch_ = kept("patch_embed.proj", features, d, patch_shape);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("transformer_blocks.{}.", i);
    const auto of_tokens = [&](const std::vector<std::string>& parts, std::int64_t in,
                               std::int64_t out) {
      std::vector<std::string> names;
      for (const std::string& part : parts) names.push_back(name + part);
      return make.linear(names, in, out, {.takes_lora = true});
    };
    Block& block = blocks_.emplace_back();
    block.modulation1 = make.linear({name + "norm1.linear"}, t, 6 * d, {});
    block.modulation2 = make.linear({name + "norm2.linear"}, t, 6 * d, {});
    block.norm1 = make.norm(name + "norm1.norm", d);
    block.query = of_tokens({"attn1.to_q"}, d, d);
    block.key_value = of_tokens({"attn1.to_k", "attn1.to_v"}, d, d);
    const Affine query = make.norm(name + "attn1.norm_q", c.head_channels);
    const Affine key = make.norm(name + "attn1.norm_k", c.head_channels);
    block.query_norm = {query.weight, query.bias, 1e-6F};
    block.key_norm = {key.weight, key.bias, 1e-6F};
    block.out = of_tokens({"attn1.to_out.0"}, d, d);
    block.norm2 = make.norm(name + "norm2.norm", d);
    block.up = of_tokens({"ff.net.0.proj"}, d, 4 * d);
    block.down = of_tokens({"ff.net.2"}, 4 * d, d);
  }
  norm_final_ = make.norm("norm_final", d);
  modulation_out_ = kept("norm_out.linear", t, 2 * d);
  norm_out_ = make.norm("norm_out.norm", d);
  out_ = kept("proj_out", d, c.out_channels * c.patch.frames * c.patch.rows * c.patch.columns);
  make.finish();
  capturable_ = make.capturable();
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

// tokens: normalised and modulated.
Tensor CogVideoXTransformer::attention(const Block& block, const CogVideoXPlacement& placement,
                                       const Tensor& tokens) const {
  const std::int64_t count = tokens.shape(0), batch = tokens.shape(1), d = config_.channels();
  const std::int64_t all = placement.all_tokens();
  const auto heads = [&](const LinearLayer& layer, std::int64_t parts, const ops::HeadNorm& norm) {
    Tensor x = layer(tokens, ops::Activation::none, all)
                   .reshape({count, batch, parts, config_.heads, config_.head_channels});
    ops::normalise_and_rotate(x, norm, placement.rotary_.cosines, placement.rotary_.sines,
                              text_tokens(placement));
    return x;
  };
  const Tensor q = heads(block.query, 1, block.query_norm)
                       .reshape({count, batch, config_.heads, config_.head_channels});
  const auto keys_values = [&] { return heads(block.key_value, 2, block.key_norm); };
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_channels));
  const Tensor attended = placement.attend_(q, keys_values, scale).reshape({count, batch, d});
  return block.out(attended, ops::Activation::none, all);
}

Tensor CogVideoXTransformer::run_block(const Block& block, const CogVideoXPlacement& placement,
                                       const Tables& tables, Tensor z) const {
  const Tape::Rows rows(placement.tokens_);
  const auto eps = static_cast<float>(config_.norm_eps);
  const std::int64_t all = placement.all_tokens();
  Tensor change =
      attention(block, placement, modulated(z, block.norm1, eps, tables.attention, placement));
  Tensor normed = added_and_modulated(z, change, tables.attention, block.norm2, eps,
                                      tables.feed_forward, placement);
  change = {};
  interruption_point();

  Tensor hidden = block.up(normed, ops::Activation::gelu_tanh, all);
  normed = {};
  const Tape::LastOps last(tables.feed_forward);
  change = block.down(hidden, ops::Activation::none, all);
  hidden = {};
  ops::add_gated(z, change, tables.feed_forward, gate_chunk,
                 {text_tokens(placement), video_chunks});
  return z;
}

Tensor CogVideoXTransformer::embed(double timestep) const {
  return timestep_embedding(static_cast<std::int64_t>(timestep), config_.channels(), config_,
                            device_.host())
      .to(dtype_)
      .on(device_);
}

// Every modulation layer begins with silu of the time embedding: computed once. The whole batch has
// the same timestep.
Tensor CogVideoXTransformer::time_embedding(const Tensor& sinusoid) const {
  constexpr auto silu = ops::Activation::silu;
  Tensor time = time2_.of_row(time1_.of_row(sinusoid, silu));
  if (!ofs_sinusoid_.empty()) {
    ops::add(time, ofs2_.of_row(ofs1_.of_row(ofs_sinusoid_, silu)));
  }
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

namespace {

struct CogVideoXTrainingClip final : TrainableDenoiser::Clip {
  CogVideoXTrainingClip(const CogVideoXTransformer& transformer, const DenoiseTask& task)
      : placement(transformer, task.group, task.layout.tokens, task.layout.text, 1,
                  task.layout.mesh.ring) {}
  const TokenColumns& columns() const override { return placement.columns(); }

  CogVideoXPlacement placement;
};

}  // namespace

std::unique_ptr<const TrainableDenoiser::Clip> CogVideoXTransformer::prepare_training(
    const DenoiseTask& task) const {
  return std::make_unique<CogVideoXTrainingClip>(*this, task);
}

Tensor CogVideoXTransformer::predict_together(const Clip& clip,
                                              const TrainingSample& sample) const {
  const Tensor latents = sample.latents.on(device_);
  std::vector<Tensor> images;
  if (const std::int64_t channels = config_.image_channels(); channels > 0) {
    Shape expected = sample.latents.shape();
    expected[1] = channels;
    expect(sample.image.shape() == expected, "latents {} of an image, expected {}",
           sample.image.shape(), expected);
    images.push_back(patches(sample.image.on(device_)));
  }
  return (*this)(dynamic_cast<const CogVideoXTrainingClip&>(clip).placement, {&latents, 1},
                 sample.text.on(device_), embed(sample.timestep), images)
      .front();
}

TrainableDenoiser::Example CogVideoXTransformer::example(Device host) const {
  const Shape tokens = config_.learned_positions ? config_.sample_tokens() : Shape{1, 1, 1};
  const Shape text{config_.max_text_tokens};
  const ops::Patch& patch = config_.patch;
  const Shape latents{tokens[0] * patch.frames, tokens[1] * patch.rows, tokens[2] * patch.columns};
  DenoiseTask task{.group = comm::Group::pretended(0, 1), .latents = latents};
  task.layout.mesh = {1, 1, 1};
  task.layout.tokens = Layout::replicated(tokens, 1);
  task.layout.text = Layout::replicated(text, 1);
  const auto zeros = [&](std::int64_t channels) {
    return Tensor::zeros({latents[0], channels, latents[1], latents[2]}, DType::float32, host);
  };
  TrainingSample sample{.latents = zeros(config_.latent_channels()),
                        .target = zeros(config_.out_channels),
                        .text = Tensor::zeros({text[0], 1, config_.text_channels}, dtype_, host)};
  if (config_.takes_image()) sample.image = zeros(config_.image_channels());
  return {task, sample};
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
  std::vector<Tensor> parts;
  // Without the blocks, the text's tokens are not needed. Otherwise also on a rank without any: the
  // others may need its share of the weights.
  if (blocks != Blocks::reuse) {
    const Tape::Rows rows(placement.text_tokens_);
    parts.push_back(text_(context, ops::Activation::none, placement.all_text_tokens()));
  }
  const std::int64_t tokens = own_box(placement.grid_, placement.group_).numel();
  Tensor video = Tensor::empty({tokens, batch, d}, dtype_, device_);
  {
    const Tape::Rows rows(placement.video_tokens_);
    ops::repeat_for_batch(
        patch_(input_patches(latents, images), ops::Activation::none, placement.all_video_tokens()),
        video);
  }
  if (!config_.rotary) ops::add_table(video, placement.sincos_table_);
  parts.push_back(std::exchange(video, {}));
  Tensor z = ops::join_rows(parts);
  parts.clear();
  if (config_.learned_positions) {
    const Tensor& table = placement.learned_table_;
    ops::add_table(z, table.rows(table.shape(0) - z.shape(0), z.shape(0)));
  }
  return z;
}

std::vector<Tensor> CogVideoXTransformer::operator()(const CogVideoXPlacement& placement,
                                                     std::span<const Tensor> latents,
                                                     const Tensor& context, const Tensor& sinusoid,
                                                     std::span<const Tensor> images, Blocks blocks,
                                                     Tensor residual) const {
  const Tape::Rows all(placement.tokens_);
  const Tensor time = time_embedding(sinusoid);
  Tensor z = embed_tokens(placement, latents, context, images, blocks);
  const std::int64_t tokens = own_box(placement.grid_, placement.group_).numel();
  before_blocks(blocks, z.rows(z.shape(0) - tokens, tokens), residual);
  for (std::size_t i = 0; blocks != Blocks::reuse && i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const Tables tables{ops::shared_by_tokens(block.modulation1.of_row(time)),
                        ops::shared_by_tokens(block.modulation2.of_row(time))};
    z = checkpoint(static_cast<int>(i), std::move(z), [this, &block, &placement, tables](Tensor x) {
      return run_block(block, placement, tables, std::move(x));
    });
  }

  const Tape::Rows rows(placement.video_tokens_);
  Tensor video = ops::row_range(z, z.shape(0) - tokens, tokens);
  after_blocks(blocks, video, residual);
  const auto eps = static_cast<float>(config_.norm_eps);
  const Tensor normed = ops::layer_norm(video, norm_final_.weight, norm_final_.bias, eps);
  Tensor modulated = Tensor::empty(normed.shape(), dtype_, device_);
  const Tensor table = ops::shared_by_tokens(modulation_out_.of_row(time));
  ops::modulated_layer_norm(normed, norm_out_.weight, norm_out_.bias, eps, {table, 0, 1},
                            modulated);
  const Tensor features = out_(modulated, ops::Activation::none, placement.all_video_tokens());
  std::vector<Tensor> predictions;
  for (std::int64_t item = 0; item < placement.batch_; ++item) {
    predictions.push_back(ops::unpatchify(features, item, config_.patch, latents.front().shape()));
  }
  return predictions;
}

}  // namespace reelmesh
