#include "models/wan/transformer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/interruption.hpp"
#include "models/common/residual.hpp"
#include "ops/rows.hpp"

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
                           const Layout& grid, std::int64_t batch, int ring,
                           std::int64_t image_rows)
    : group_(group),
      grid_(grid),
      batch_(batch),
      attend_(group, {grid},
              {batch, transformer.config().heads, transformer.config().head_channels, ring},
              transformer.dtype(), transformer.device(), transformer.numerics()),
      columns_(group, {grid}, transformer.config().head_channels),
      rotary_(wan_rotary_tables(transformer.config(), own_box(grid, group),
                                transformer.device().host())) {
  const WanConfig& config = transformer.config();
  rotary_ = {rotary_.cosines.on(transformer.device()), rotary_.sines.on(transformer.device())};
  for (const std::int64_t keys : {WanConfig::text_tokens, image_rows}) {
    if (keys == 0) continue;
    const ops::AttentionShape shape{.dtype = transformer.dtype(),
                                    .batch = batch,
                                    .heads = config.heads,
                                    .channels = config.head_channels,
                                    .queries = tokens(),
                                    .keys = keys};
    const std::size_t shapes = tokens() > 0 ? 1 : 0;
    prepare_attend(group, transformer.device(), shape.dtype, keys, shape.channels, {&shape, shapes},
                   transformer.numerics());
  }
}

ops::FirstTokens WanPlacement::frame_0(int chunks_later) const {
  const Box& box = own_box(grid_, group_);
  if (box.empty() || box.offset[0] > 0) return {};
  return {box.numel() / box.extent[0], chunks_later};
}

WanTransformer::WanTransformer(const Checkpoint& weights, const WanConfig& c, DType dtype,
                               const WeightPlacement& placement, ModelTraining* training)
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
  // Layers are made in the order in which a step uses them. Those that only the texts pass are
  // beside the others. The small ones before and after the blocks stay, so that a step without the
  // blocks fetches nothing.
  LayerMaker make(weights, dtype, placement, training);
  using Residing = LayerMaker::Residing;
  const auto kept = [&](const std::string& name, std::int64_t in, std::int64_t out,
                        std::optional<DType> own = {}) {
    return make.linear({name}, in, out, {.residing = Residing::kept, .dtype = own});
  };
  const std::string condition = "condition_embedder.", text = condition + "text_embedder.",
                    time = condition + "time_embedder.";
  text1_ = make.linear({text + "linear_1"}, c.text_channels, d, {.residing = Residing::beside});
  text2_ = make.linear({text + "linear_2"}, d, d, {.residing = Residing::beside});
  if (c.vision_channels > 0) {
    const std::string image = condition + "image_embedder.";
    const std::int64_t channels = c.vision_channels;
    if (c.vision_positions > 0) {
      vision_positions_ = make.table(image + "pos_embed", {1, c.vision_positions, channels});
    }
    vision_norm1_ = make.norm(image + "norm1", channels, DType::float32);
    vision1_ =
        make.linear({image + "ff.net.0.proj"}, channels, channels, {.residing = Residing::beside});
    vision2_ = make.linear({image + "ff.net.2"}, channels, d, {.residing = Residing::beside});
    vision_norm2_ = make.norm(image + "norm2", d, DType::float32);
  }
  time1_ = kept(time + "linear_1", c.time_features, d, DType::float32);
  time2_ = kept(time + "linear_2", d, d, DType::float32);
  time_projection_ = kept(condition + "time_proj", d, wan_chunks * d);
  patch_ = make.linear(
      {"patch_embedding"}, c.in_channels * c.patch_pixels(), d,
      {.residing = Residing::kept, .stored = {d, c.in_channels, 1, c.patch.rows, c.patch.columns}});
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("blocks.{}.", i);
    Block& block = blocks_.emplace_back();
    block.table = make.table(name + "scale_shift_table", {1, wan_chunks, d}, DType::float32);
    const auto attention = [&](const std::string& layer, Residing keys) {
      Attention result;
      result.query = make.linear({layer + "to_q"}, d, d, {.takes_lora = true});
      result.key_value = make.linear({layer + "to_k", layer + "to_v"}, d, d,
                                     {.residing = keys, .takes_lora = true});
      result.out = make.linear({layer + "to_out.0"}, d, d, {.takes_lora = true});
      result.query_norm = make.vector(layer + "norm_q.weight", d);
      result.key_norm = make.vector(layer + "norm_k.weight", d);
      return result;
    };
    block.self = attention(name + "attn1.", Residing::streamed);
    block.text_norm = make.norm(name + "norm2", d, DType::float32);
    block.text = attention(name + "attn2.", Residing::beside);
    if (c.vision_channels > 0) {
      const std::string layer = name + "attn2.";
      block.image_key_value = make.linear({layer + "add_k_proj", layer + "add_v_proj"}, d, d,
                                          {.residing = Residing::beside, .takes_lora = true});
      block.image_key_norm = make.vector(layer + "norm_added_k.weight", d);
    }
    block.up = make.linear({name + "ffn.net.0.proj"}, d, c.hidden_channels, {.takes_lora = true});
    block.down = make.linear({name + "ffn.net.2"}, c.hidden_channels, d, {.takes_lora = true});
  }
  out_table_ = make.table("scale_shift_table", {1, 2, d}, DType::float32);
  out_ = make.linear({"proj_out"}, d, c.out_channels * c.patch_pixels(),
                     {.residing = Residing::kept, .channels_first = c.out_channels});
  make.finish();
  capturable_ = make.capturable();
}

Tensor WanTransformer::embed(double timestep) const {
  return wan_sinusoid(timestep, config_.time_features, device_.host()).on(device_);
}

// [1, channel] of dtype_, rounded once.
Tensor WanTransformer::time_embedding(const Tensor& sinusoid) const {
  return ops::converted(time2_.of_row(time1_.of_row(sinusoid, ops::Activation::silu)), dtype_);
}

// What all blocks add to their tables, float32 [1, 6·channel].
Tensor WanTransformer::block_times(const Tensor& time) const {
  return ops::shared_by_tokens(
      ops::converted(time_projection_.of_row(ops::silu(time)), DType::float32));
}

// Shift and scale of the last norm, float32 [1, 2·channel].
Tensor WanTransformer::out_table(const Tensor& time) const {
  const Tensor row = ops::converted(time, DType::float32);
  const std::array<Tensor, 2> both{row, row};
  Tensor table = out_table_.clone();
  ops::add(table, ops::shared_by_tokens(ops::join_rows(both)));
  return table.reshape({1, 2 * config_.channels()});
}

Tensor WanTransformer::modulated(const Tensor& x, const ops::Modulation& modulation) const {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  ops::modulated_layer_norm(x, ones_, zeros_, eps_, modulation, out);
  return out;
}

// The products of x as [token, batch, 1 or 2, head, channel], the first part normalised over all
// heads and rotated.
Tensor WanTransformer::normed_heads(const LinearLayer& product, const Tensor& x, const Tensor& norm,
                                    const WanRotaryTables& rotary, std::int64_t all_rows) const {
  const std::int64_t parts = product.out_features() / config_.channels();
  Tensor heads =
      product(x, ops::Activation::none, all_rows)
          .reshape({x.shape(0), x.shape(1), parts, config_.heads, config_.head_channels});
  ops::norm_together_and_rotate(heads, norm, eps_, rotary.cosines, rotary.sines);
  return heads;
}

namespace {

// [frame, channel, row, column] → the channels of both, as the transformer takes them.
Tensor with_channels(const Tensor& latents, const Tensor& image) {
  Shape shape = latents.shape();
  const auto flat = [&](const Tensor& x) {
    return x.reshape({shape[0], x.shape(1), shape[2] * shape[3]});
  };
  const std::array parts{flat(latents), flat(image)};
  shape[1] += image.shape(1);
  return ops::join_batches(parts).reshape(shape);
}

}  // namespace

// [token, clip, feature].
Tensor WanTransformer::patches(std::span<const Tensor> latents,
                               std::span<const Tensor> images) const {
  std::vector<Tensor> all;
  for (std::size_t clip = 0; clip < latents.size(); ++clip) {
    const Tensor tokens =
        ops::patchify(images.empty() ? latents[clip] : with_channels(latents[clip], images[clip]),
                      config_.patch, dtype_);
    all.push_back(tokens.reshape({tokens.shape(0), 1, tokens.shape(1)}));
  }
  return ops::join_batches(all);
}

// Rows of the image encoder as the blocks take them, [row, batch, channel].
Tensor WanTransformer::embed_vision(const Tensor& vision) const {
  constexpr float eps = 1e-5F;
  const std::int64_t rows = vision.shape(0);
  Tensor x = vision;
  if (!vision_positions_.empty()) {
    x = x.clone();
    ops::add_table(x, vision_positions_);
  }
  x = ops::layer_norm(x, vision_norm1_.weight, vision_norm1_.bias, eps);
  x = ops::gelu(vision1_(x, ops::Activation::none, rows));
  return ops::layer_norm(vision2_(x, ops::Activation::none, rows), vision_norm2_.weight,
                         vision_norm2_.bias, eps);
}

WanContext WanTransformer::encode_context(const Tensor& text, const Tensor& vision) const {
  constexpr std::int64_t rows = WanConfig::text_tokens;
  const std::int64_t batch = text.shape(1);
  expect(text.shape(0) <= rows && text.shape(2) == config_.text_channels,
         "text {} for a model that takes {} rows of {} channels", text.shape(), rows,
         config_.text_channels);
  Tensor padded = Tensor::zeros({rows, batch, config_.text_channels}, dtype_, device_);
  padded.rows(0, text.shape(0)).copy_from(text);
  const Tensor embedded =
      text2_(text1_(padded, ops::Activation::gelu_tanh, rows), ops::Activation::none, rows);
  expect(vision.empty() == (config_.vision_channels == 0),
         "rows {} of an image encoder for a model that takes {} channels of them", vision.shape(),
         config_.vision_channels);
  const Tensor image = vision.empty() ? Tensor() : embed_vision(vision);
  WanContext context;
  for (const Block& block : blocks_) {
    WanBlockContext& own = context.emplace_back();
    own.text = normed_heads(block.text.key_value, embedded, block.text.key_norm, {}, rows);
    if (image.empty()) continue;
    own.image =
        normed_heads(block.image_key_value, image, block.image_key_norm, {}, image.shape(0));
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

// Text and image are context, of which each rank has all keys.
Tensor WanTransformer::context_attention(const Block& block, const WanPlacement& placement,
                                         const WanBlockContext& context, const Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  const Tensor q = normed_heads(block.text.query, x, block.text.query_norm, {}, all)
                       .reshape({x.shape(0), x.shape(1), config_.heads, config_.head_channels});
  const auto attend = [&](const Tensor& keys_values) {
    return attend_to_whole_together(placement.columns_, q, keys_values, scale_, numerics_);
  };
  Tensor attended = attend(context.text);
  if (!context.image.empty()) ops::add(attended, attend(context.image));
  return block.text.out(attended.reshape(x.shape()), ops::Activation::none, all);
}

Tensor WanTransformer::run_block(const Block& block, const WanPlacement& placement,
                                 const WanBlockContext& context, const Tensor& times,
                                 Tensor x) const {
  const Tape::Rows rows(placement.columns_);
  const std::int64_t all = placement.all_tokens();
  const bool two_times = times.numel() > block.table.numel();
  const ops::FirstTokens first = two_times ? placement.frame_0(wan_chunks) : ops::FirstTokens{};
  const std::vector<Tensor> tables(two_times ? 2 : 1, block.table);
  Tensor table = (two_times ? ops::join_rows(tables) : block.table.clone()).reshape(times.shape());
  ops::add(table, times);
  ops::add_gated(
      x,
      self_attention(block, placement,
                     modulated(x, {table, attention_shift_chunk, attention_scale_chunk, first})),
      table, attention_gate_chunk, first);
  interruption_point();
  ops::add(
      x, context_attention(block, placement, context,
                           ops::layer_norm(x, block.text_norm.weight, block.text_norm.bias, eps_)));

  Tensor hidden = block.up(modulated(x, {table, hidden_shift_chunk, hidden_scale_chunk, first}),
                           ops::Activation::gelu_tanh, all);
  const Tape::LastOps last(table);
  const Tensor change = block.down(hidden, ops::Activation::none, all);
  hidden = {};
  ops::add_gated(x, change, table, hidden_gate_chunk, first);
  return x;
}

std::vector<Tensor> WanTransformer::operator()(const WanPlacement& placement,
                                               std::span<const Tensor> latents,
                                               const WanContext& context, const Tensor& sinusoid,
                                               std::span<const Tensor> images, Blocks blocks,
                                               Tensor residual, const Tensor& sinusoid_0) const {
  const std::int64_t all = placement.all_tokens(), batch = placement.batch_;
  expect(images.size() == (config_.takes_image() ? latents.size() : 0),
         "{} images for {} clips of a model with {} channels for them", images.size(),
         latents.size(), config_.image_channels());
  expect(context.size() == blocks_.size(), "text of {} blocks for {}", context.size(),
         blocks_.size());
  const Tape::Rows rows(placement.columns_);
  std::vector<Tensor> times{time_embedding(sinusoid)};
  if (!sinusoid_0.empty()) times.push_back(time_embedding(sinusoid_0));
  // What `make` makes of each, one after the other.
  const auto tables = [&](Tensor (WanTransformer::*make)(const Tensor&) const) {
    std::vector<Tensor> made;
    for (const Tensor& time : times) made.push_back((this->*make)(time));
    const Tensor joined = ops::join_rows(made);
    return joined.reshape({1, joined.numel()});
  };
  Tensor x = Tensor::empty({placement.tokens(), batch, config_.channels()}, dtype_, device_);
  ops::repeat_for_batch(patch_(patches(latents, images), ops::Activation::none, all), x);
  before_blocks(blocks, x, residual);
  const Tensor block_tables =
      blocks == Blocks::reuse ? Tensor() : tables(&WanTransformer::block_times);
  for (std::size_t i = 0; blocks != Blocks::reuse && i < blocks_.size(); ++i) {
    x = checkpoint(
        static_cast<int>(i), std::move(x),
        [this, &block = blocks_[i], &placement, own = context[i], block_tables](Tensor in) {
          return run_block(block, placement, own, block_tables, std::move(in));
        });
  }
  after_blocks(blocks, x, residual);
  const ops::FirstTokens first = times.size() > 1 ? placement.frame_0(2) : ops::FirstTokens{};
  const Tensor features = out_(modulated(x, {tables(&WanTransformer::out_table), 0, 1, first}),
                               ops::Activation::none, all);
  Shape shape = latents.front().shape();
  shape[1] = config_.out_channels;
  std::vector<Tensor> predictions;
  for (std::int64_t item = 0; item < batch; ++item) {
    predictions.push_back(ops::unpatchify(features, item, config_.patch, shape));
  }
  return predictions;
}

namespace {

// Mask and condition of a clip [frame, mask and latent channel, row, column], for the box of its
// latents that a rank has. The mask is 1 where a frame is an image: in all channels of latent frame
// 0, whose only frame it is, and in the last channel of a last frame.
Tensor with_mask(const Conditioning& clip, const Shape& latents, const Box& box) {
  constexpr std::int64_t mask = WanConfig::mask_channels;
  Shape shape = clip.image.shape();
  const std::int64_t pixels = shape[2] * shape[3], channels = shape[1];
  shape[1] += mask;
  Tensor all = Tensor::zeros(shape, DType::float32, clip.image.device());
  if (all.device().only_shapes) return all;
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    const std::int64_t frame = box.offset[0] + i;
    float* to = all.rows(i, 1).data<float>();
    const bool is_last = clip.ends_with_image && frame == latents[0] - 1;
    if (frame == 0 || is_last) {
      const std::int64_t first = frame == 0 ? 0 : mask - 1;
      std::fill(to + first * pixels, to + mask * pixels, 1.0F);
    }
    std::copy_n(clip.image.rows(i, 1).data<float>(), channels * pixels, to + mask * pixels);
  }
  return all;
}

// Also on ranks whose part of it is empty.
bool has_image(const Conditioning& clip) { return clip.image.shape().size() > 1; }

// What all branches of guidance have in common, repeated for each of them.
Tensor for_branches(std::span<const Conditioning> conditioning, std::int64_t branches) {
  std::vector<Tensor> rows;
  for (const Conditioning& clip : conditioning) {
    const Shape& shape = clip.vision.shape();
    rows.insert(rows.end(), static_cast<std::size_t>(branches),
                clip.vision.reshape({shape[0], 1, shape[1]}));
  }
  return ops::join_batches(rows);
}

class PreparedWan final : public Denoiser::Prepared {
 public:
  PreparedWan(const WanTransformer& transformer, const DenoiseTask& task,
              std::span<const Conditioning> conditioning)
      : transformer_(transformer),
        placement_(transformer, task.group, task.layout.tokens,
                   std::ssize(conditioning) * task.branches, task.layout.mesh.ring,
                   conditioning.front().vision.empty() ? 0 : conditioning.front().vision.shape(0)),
        branches_(task.branches) {
    const Device device = transformer.device();
    const bool takes_image = transformer.config().takes_image();
    const Box& box = own_box(task.layout.latents, task.group);
    std::vector<Tensor> texts;
    for (const Conditioning& clip : conditioning) {
      texts.push_back(clip.text);
      expect(!takes_image || has_image(clip), "no image for a model with {} channels",
             transformer.config().image_channels());
      if (!takes_image) continue;
      images_.push_back(with_mask(clip, task.latents, box).on(device));
    }
    // Otherwise an image is frame 0 of the latents, without noise.
    if (!takes_image && has_image(conditioning.front())) {
      sinusoid_0_ = transformer.embed(0);
    }
    Tensor vision;
    if (transformer.config().vision_channels > 0) {
      vision = for_branches(conditioning, task.branches).on(device);
    }
    context_ = transformer.encode_context(ops::join_batches(texts).on(device), vision);
    if (task.keeps_residual) {
      residual_ =
          Tensor::zeros({placement_.tokens(), placement_.batch(), transformer.config().channels()},
                        transformer.dtype(), transformer.device());
    }
  }

  std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor& time,
                                       Blocks blocks) override {
    return transformer_(placement_, latents, context_, time, images_, blocks, residual_,
                        sinusoid_0_);
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
  Tensor residual_;             ///< [token, item of the batch, channel], or empty
  std::vector<Tensor> images_;  ///< mask and condition of each clip, or none
  Tensor sinusoid_0_;           ///< of frame 0 where it is an image; otherwise empty
};

}  // namespace

std::unique_ptr<Denoiser::Prepared> WanTransformer::prepare(
    const DenoiseTask& task, std::span<const Conditioning> conditioning) const {
  return std::make_unique<PreparedWan>(*this, task, conditioning);
}

namespace {

struct WanTrainingClip final : TrainableDenoiser::Clip {
  WanTrainingClip(const WanTransformer& transformer, const DenoiseTask& task)
      : placement(transformer, task.group, task.layout.tokens, 1, task.layout.mesh.ring,
                  task.image_rows),
        latents(task.latents),
        box(own_box(task.layout.latents, task.group)) {}
  const TokenColumns& columns() const override { return placement.columns(); }

  WanPlacement placement;
  Shape latents;
  Box box;                                      ///< of the latents
  WholeRows context_rows{placement.columns()};  ///< of the caption and of the image encoder
};

}  // namespace

std::unique_ptr<const TrainableDenoiser::Clip> WanTransformer::prepare_training(
    const DenoiseTask& task) const {
  return std::make_unique<WanTrainingClip>(*this, task);
}

Tensor WanTransformer::predict_together(const Clip& clip, const TrainingSample& sample) const {
  const auto& own = dynamic_cast<const WanTrainingClip&>(clip);
  const Tensor latents = sample.latents.on(device_);
  std::vector<Tensor> images;
  if (config_.takes_image()) {
    Shape expected = sample.latents.shape();
    expected[1] = config_.image_channels() - WanConfig::mask_channels;
    expect(sample.image.shape() == expected, "latents {} of an image, expected {}",
           sample.image.shape(), expected);
    const Conditioning image{.text = {}, .image = sample.image, .vision = {}};
    images.push_back(with_mask(image, own.latents, own.box).on(device_));
  }
  WanContext context;
  {
    const Tape::Rows rows(own.context_rows);
    Tensor vision;
    if (config_.vision_channels > 0) {
      vision = sample.vision.reshape({sample.vision.shape(0), 1, config_.vision_channels});
      vision = vision.on(device_);
    }
    context = encode_context(sample.text.on(device_), vision);
  }
  return (*this)(own.placement, {&latents, 1}, context, embed(sample.timestep), images).front();
}

TrainableDenoiser::Example WanTransformer::example(Device host) const {
  const Shape latents{1, config_.patch.rows, config_.patch.columns};
  DenoiseTask task{.group = comm::Group::pretended(0, 1), .latents = latents};
  task.layout.mesh = {1, 1, 1};
  task.layout.tokens = Layout::replicated({1, 1, 1}, 1);
  task.layout.text = Layout::replicated({1}, 1);
  task.layout.latents = Layout::replicated(latents, 1);
  const auto zeros = [&](std::int64_t channels) {
    return Tensor::zeros({1, channels, latents[1], latents[2]}, DType::float32, host);
  };
  TrainingSample sample{.latents = zeros(config_.out_channels),
                        .target = zeros(config_.out_channels),
                        .text = Tensor::zeros({1, 1, config_.text_channels}, dtype_, host)};
  if (config_.takes_image()) {
    sample.image = zeros(config_.image_channels() - WanConfig::mask_channels);
  }
  if (config_.vision_channels > 0) {
    sample.vision = Tensor::zeros({1, config_.vision_channels}, dtype_, host);
  }
  return {task, sample};
}

}  // namespace reelmesh
