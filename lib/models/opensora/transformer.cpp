#include "models/opensora/transformer.hpp"

#include <algorithm>
#include <cmath>

#include "layout/space_time.hpp"
#include "models/common/residual.hpp"
#include "ops/rows.hpp"

namespace reelmesh {

STDiT::Attention STDiT::make_attention(LayerMaker& make, const std::string& name) const {
  const std::int64_t d = config_.hidden;
  Attention layer;
  layer.query_key_value =
      make.linear({name + ".qkv"}, d, 3 * d, {.takes_lora = true, .pieces = {d, 2 * d}});
  layer.out = make.linear({name + ".proj"}, d, d, {.takes_lora = true});
  if (config_.kind == STDiTConfig::Kind::v3) {
    const std::int64_t channels = config_.head_channels();
    layer.query_norm = {make.vector(name + ".q_norm.weight", channels), {}, norm_eps};
    layer.key_norm = {make.vector(name + ".k_norm.weight", channels), {}, norm_eps};
  }
  return layer;
}

// Cross-attention and MLP of a block.
void STDiT::make_text_and_mlp(LayerMaker& make, const std::string& name, Block& block) const {
  const std::int64_t d = config_.hidden, hidden = config_.mlp_hidden;
  const auto linear = [&](const char* layer, std::int64_t in, std::int64_t out,
                          LayerMaker::Residing residing = LayerMaker::Residing::streamed) {
    return make.linear({name + layer}, in, out, {.residing = residing, .takes_lora = true});
  };
  block.text.query = linear(".cross_attn.q_linear", d, d);
  block.text.key_value = linear(".cross_attn.kv_linear", d, 2 * d, LayerMaker::Residing::beside);
  block.text.out = linear(".cross_attn.proj", d, d);
  block.up = linear(".mlp.fc1", d, hidden);
  block.down = linear(".mlp.fc2", hidden, d);
}

STDiT::Block STDiT::make_block(LayerMaker& make, const std::string& name) const {
  Block block;
  block.table = make.table(name + ".scale_shift_table", {6, config_.hidden});
  block.attention = make_attention(make, name + ".attn");
  return block;
}

STDiT::STDiT(const Checkpoint& weights, const STDiTConfig& c, DType dtype,
             const WeightPlacement& placement, ModelTraining* training)
    : config_(c),
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
  // Layers are made in the order in which a step uses them. Those that only the texts pass are
  // beside the others. What is not in the blocks stays, so that a step without them fetches
  // nothing.
  LayerMaker make(weights, dtype, placement, training);
  using Residing = LayerMaker::Residing;
  const auto kept = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    return make.linear({name}, in, out, {.residing = Residing::kept});
  };
  caption1_ =
      make.linear({"y_embedder.y_proj.fc1"}, c.text_channels, d, {.residing = Residing::beside});
  caption2_ = make.linear({"y_embedder.y_proj.fc2"}, d, d, {.residing = Residing::beside});
  null_caption_ =
      weights.load("y_embedder.y_embedding", {c.max_text_tokens, c.text_channels}, dtype);
  time1_ = kept("t_embedder.mlp.0", number_channels, d);
  time2_ = kept("t_embedder.mlp.2", d, d);
  if (v3) {
    fps1_ = kept("fps_embedder.mlp.0", number_channels, d);
    fps2_ = kept("fps_embedder.mlp.2", d, d);
    frequencies_ =
        weights.load("rope.freqs", {c.head_channels() / 2}, DType::float32).on(device_.host());
  }
  time_block_ = kept("t_block.1", d, 6 * d);
  patch_ = make.linear(
      {"x_embedder.proj"}, c.patch_features(), d,
      {.residing = Residing::kept, .stored = {d, c.in_channels, 1, c.patch.rows, c.patch.columns}});
  for (std::int64_t i = 0; i < c.layers; ++i) {
    Pair& pair = pairs_.emplace_back();
    if (v3) {
      for (const bool spatial : {true, false}) {
        const std::string name = fmt::format("{}_blocks.{}", spatial ? "spatial" : "temporal", i);
        Block& block = spatial ? pair.spatial : pair.temporal;
        block = make_block(make, name);
        make_text_and_mlp(make, name, block);
      }
    } else {  // both kinds of attention are in one block
      const std::string name = fmt::format("blocks.{}", i);
      pair.spatial = make_block(make, name);
      pair.temporal.attention = make_attention(make, name + ".attn_temp");
      make_text_and_mlp(make, name, pair.spatial);
    }
  }
  out_table_ = make.table("final_layer.scale_shift_table", {2, d});
  out_ = make.linear({"final_layer.linear"}, d, c.patch.rows * c.patch.columns * c.out_channels(),
                     {.residing = Residing::kept, .channels_first = c.out_channels()});
  make.finish();
  capturable_ = make.capturable();
}

Shape whole_patches(const Shape& latents, const ops::Patch& patch) {
  const auto enlarged = [](std::int64_t n, std::int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
  };
  return {latents.at(0), latents.at(1), enlarged(latents.at(2), patch.rows),
          enlarged(latents.at(3), patch.columns)};
}

Tensor resized_latents(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  if (x.shape(2) == rows && x.shape(3) == columns) return x;
  const Shape none(4), larger{x.shape(0), x.shape(1), rows, columns};
  Tensor out = Tensor::zeros(larger, x.dtype(), x.device());
  const Shape common{x.shape(0), x.shape(1), std::min(rows, x.shape(2)),
                     std::min(columns, x.shape(3))};
  copy_box({none, common}, x, {none, x.shape()}, out, {none, larger});
  if (Tape* tape = Tape::of(x)) {
    tape->record(out, [tape, x = TapeValue(x)](const Tensor& d) {
      ops::add_gradient(*tape, x, resized_latents(d, x.shape[2], x.shape[3]));
    });
  }
  return out;
}

STDiTContext STDiT::encode_context(const Tensor& text) const {
  const std::int64_t tokens = text.shape(0);
  expect(tokens >= 1 && tokens <= config_.max_text_tokens, "{} tokens of text, expected 1 to {}",
         tokens, config_.max_text_tokens);
  const std::array<Tensor, branches> texts{
      null_caption_.rows(0, tokens).reshape({tokens, 1, config_.text_channels}),
      text.on(device_).reshape({tokens, 1, config_.text_channels})};
  return encode_captions(ops::join_batches(texts));
}

STDiTContext STDiT::encode_captions(const Tensor& captions) const {
  const Tensor all = caption2_.of_whole(caption1_.of_whole(captions, ops::Activation::gelu_tanh));
  STDiTContext context;
  const auto add = [&](const Block& block) {
    context.keys_values.push_back(heads_of(block.text.key_value.of_whole(all)));
  };
  for (const Pair& pair : pairs_) {
    add(pair.spatial);
    if (config_.kind == STDiTConfig::Kind::v3) add(pair.temporal);
  }
  return context;
}

Tensor STDiT::modulated(const Tensor& x, const Tensor& table, int shift, int scale) const {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  ops::modulated_layer_norm(x, ones_, zeros_, norm_eps, {table, shift, scale}, out);
  return out;
}

// x: [token, branch, part · channel] → [token, branch, part, head, channel].
Tensor STDiT::heads_of(const Tensor& x) const {
  return x.reshape({x.shape(0), x.shape(1), x.shape(2) / config_.hidden, config_.heads,
                    config_.head_channels()});
}

// Spatial attention: each frame is a sequence. x: [clip · token, branch, channel], frames cut →
// same shape and cut.
Tensor STDiT::within_frames(const Attention& layer, const STDiTPlacement& placement,
                            const Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  std::vector<Tensor> sums = layer.query_key_value.pieces(x, all);
  Tensor q = heads_of(std::exchange(sums[0], {})), kv = heads_of(std::exchange(sums[1], {}));
  if (config_.kind == STDiTConfig::Kind::v3) {
    ops::normalise_and_rotate(q, layer.query_norm, {}, {});
    ops::normalise_and_rotate(kv, layer.key_norm, {}, {});
  }
  return layer.out(placement.within_frames(q, kv, scale_, numerics_).reshape(x.shape()),
                   ops::Activation::none, all);
}

// Temporal attention: each position is a sequence. x: [clip · token, branch, channel], positions
// cut → same shape and cut.
Tensor STDiT::along_time(const Attention& layer, const STDiTPlacement& placement,
                         const Tensor& x) const {
  const Shape& mine = placement.position_cut_extents_;
  const std::int64_t clips = placement.clips(), all = placement.all_tokens();
  std::vector<Tensor> sums = layer.query_key_value.pieces(
      x.reshape({clips * mine[0], mine[1] * x.shape(1), config_.hidden}), all);
  Tensor q = heads_of(std::exchange(sums[0], {})), kv = heads_of(std::exchange(sums[1], {}));
  if (config_.kind == STDiTConfig::Kind::v3) {
    const auto rotate = [&](Tensor& heads, const ops::HeadNorm& norm) {
      const auto& [cosines, sines] = placement.rotation_;
      if (clips == 1) return ops::normalise_and_rotate(heads, norm, cosines, sines);
      for (Tensor& clip : split_rows(heads, clips)) {
        ops::normalise_and_rotate(clip, norm, cosines, sines);
      }
    };
    rotate(q, layer.query_norm);
    rotate(kv, layer.key_norm);
  }
  return layer.out(placement.along_time(q, kv, scale_, numerics_).reshape(x.shape()),
                   ops::Activation::none, all);
}

// keys_values: index into STDiTContext::keys_values. Texts of different clips may differ in length.
void STDiT::attend_to_text(const Block& block, const STDiTPlacement& placement,
                           std::span<const STDiTContext> contexts, std::size_t keys_values,
                           Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  const Tensor q = heads_of(block.text.query(x, ops::Activation::none, all));
  std::vector<Tensor> texts;
  for (const STDiTContext& context : contexts) texts.push_back(context.keys_values[keys_values]);
  const Tensor attended = placement.to_texts(q, texts, scale_, numerics_).reshape(x.shape());
  ops::add(x, block.text.out(attended, ops::Activation::none, all));
}

Tensor STDiT::hidden_features(const Block& block, const STDiTPlacement& placement,
                              const Tensor& table, const Tensor& x) const {
  return block.up(modulated(x, table, mlp_shift, mlp_scale), ops::Activation::gelu_tanh,
                  placement.all_tokens());
}

void STDiT::add_features(const Block& block, const STDiTPlacement& placement, const Tensor& table,
                         const Tensor& hidden, Tensor& x) const {
  ops::add_gated(x, block.down(hidden, ops::Activation::none, placement.all_tokens()), table,
                 mlp_gate);
}

// x [clip · token, branch, channel], positions cut, with the temporal position table of v1.
Tensor STDiT::with_times(const STDiTPlacement& placement, const Tensor& x) const {
  const Shape& mine = placement.position_cut_extents_;
  Tensor timed = x.clone();
  const Tape::Scope paused(nullptr);  // gradients of `timed` are those of x
  for (const Tensor& clip : split_rows(timed, placement.clips())) {
    Tensor frames = clip.reshape({mine[0], mine[1] * x.shape(1), config_.hidden});
    ops::add_table(frames, placement.times_);
  }
  return timed;
}

// in: [clip · token, branch, channel], frames cut; overwritten. → the same shape and cut.
Tensor STDiT::run_pair(std::size_t index, const STDiTPlacement& placement,
                       std::span<const STDiTContext> contexts, const Tensor& time,
                       Tensor in) const {
  const auto& [spatial, temporal] = pairs_[index];
  const Tensor table = block_table(spatial, time);
  Tensor x;
  {
    const Tape::Rows rows(placement.frame_columns());
    const Tensor within = within_frames(spatial.attention, placement,
                                        modulated(in, table, attention_shift, attention_scale));
    ops::add_gated(in, within, table, attention_gate);
    x = placement.to_positions(std::exchange(in, {}));
  }
  const Tape::Rows rows(placement.position_columns());
  const bool v3 = config_.kind == STDiTConfig::Kind::v3;
  const Block& last = v3 ? temporal : spatial;
  Tensor last_table = table;
  if (v3) {
    attend_to_text(spatial, placement, contexts, 2 * index, x);
    add_features(spatial, placement, table, hidden_features(spatial, placement, table, x), x);
    last_table = block_table(temporal, time);
    const Tensor along = along_time(temporal.attention, placement,
                                    modulated(x, last_table, attention_shift, attention_scale));
    ops::add_gated(x, along, last_table, attention_gate);
    attend_to_text(temporal, placement, contexts, 2 * index + 1, x);
  } else {
    // v1's temporal attention reads the stream itself, without norm or modulation. Only the first
    // block adds the temporal position table.
    const Tensor timed = index == 0 ? with_times(placement, x) : x;
    ops::add_gated(x, along_time(temporal.attention, placement, timed), table, attention_gate);
    attend_to_text(spatial, placement, contexts, index, x);
  }
  const Tensor hidden = hidden_features(last, placement, last_table, x);
  const Tape::LastOps last_ops(last_table);
  add_features(last, placement, last_table, hidden, x);
  return placement.to_frames(x);
}

Tensor STDiT::embed(double timestep) const {
  return number_embedding(timestep, device_.host()).to(dtype_).on(device_);
}

namespace {

class PreparedSTDiT final : public Denoiser::Prepared {
 public:
  PreparedSTDiT(const STDiT& model, const DenoiseTask& task,
                std::span<const Conditioning> conditioning)
      : model_(model),
        placement_(model, task.group, SpaceTime::of(task.layout, model.config().heads),
                   stdit_clip(task), std::ssize(conditioning)) {
    for (const Conditioning& clip : conditioning) {
      texts_.push_back(
          model.encode_context(clip.text.reshape({clip.text.shape(0), clip.text.shape(2)})));
    }
    if (task.keeps_residual) {
      residual_ =
          Tensor::zeros({placement_.clips() * own_box(task.layout.tokens, task.group).numel(),
                         STDiT::branches, model.config().hidden},
                        model.dtype(), model.device());
    }
  }

  std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor& time,
                                       Blocks blocks) override {
    std::vector<Tensor> all;
    for (const auto& predictions : model_(placement_, latents, texts_, time, blocks, residual_)) {
      all.insert(all.end(), predictions.begin(), predictions.end());
    }
    return all;
  }

  double change_together(const StepInput& now, const StepInput& before) const override {
    return model_.change(placement_, now, before);
  }

  Tensor residual(std::int64_t clip) const override {
    return clip_residual(clip).on({}).to(DType::float32);
  }
  void set_residual(std::int64_t clip, const Tensor& values) override {
    Tensor tokens = clip_residual(clip);
    tokens.copy_from(values.to(residual_.dtype()));
  }

 private:
  Tensor clip_residual(std::int64_t clip) const {
    return split_rows(residual_, placement_.clips())[static_cast<std::size_t>(clip)];
  }

  const STDiT& model_;
  STDiTPlacement placement_;
  std::vector<STDiTContext> texts_;
  Tensor residual_;  ///< [clip · token, branch, channel], or empty
};

}  // namespace

std::unique_ptr<Denoiser::Prepared> STDiT::prepare(
    const DenoiseTask& task, std::span<const Conditioning> conditioning) const {
  return std::make_unique<PreparedSTDiT>(*this, task, conditioning);
}

// The embedding of timestep and, in v3, frame rate. fps: its number_embedding().
Tensor STDiT::time_embedding(const Tensor& fps, const Tensor& sinusoid) const {
  Tensor time = time2_.of_row(time1_.of_row(sinusoid, ops::Activation::silu));
  if (config_.kind == STDiTConfig::Kind::v3) {
    ops::add(time, fps2_.of_row(fps1_.of_row(fps.to(dtype_), ops::Activation::silu)));
  }
  return time;
}

// What all blocks add to their modulation tables.
Tensor STDiT::block_time(const Tensor& time) const {
  return ops::shared_by_tokens(time_block_.of_row(ops::silu(time)));
}

// The modulation table of a block, [1, 6 · channel]. time: from block_time().
Tensor STDiT::block_table(const Block& block, const Tensor& time) const {
  Tensor table = block.table.reshape({1, table_chunks * config_.hidden}).clone();
  ops::add(table, time);
  return table;
}

// That of the last layer, [1, 2 · channel]. time: from time_embedding().
Tensor STDiT::output_table(const Tensor& time) const {
  const std::array<Tensor, 2> both{time, time};
  Tensor table = out_table_.clone();
  ops::add(table, ops::shared_by_tokens(ops::join_rows(both)));
  return table.reshape({1, 2 * config_.hidden});
}

// The tokens of each clip with their spatial positions → [clip · token, copy, channel], frames cut.
Tensor STDiT::embed_tokens(const STDiTPlacement& placement, std::span<const Tensor> latents,
                           std::int64_t copies) const {
  const std::int64_t frames = placement.clips() * placement.frames();
  const std::int64_t positions = placement.positions();
  const Shape filled = whole_patches(latents.front().shape(), config_.patch);
  std::vector<Tensor> tokens;
  for (const Tensor& clip : latents) {
    const Tensor all = resized_latents(clip, filled[2], filled[3]);
    const Tensor of_clip = patch_(ops::patchify(all, config_.patch, dtype_), ops::Activation::none,
                                  placement.all_tokens());
    Tensor& repeated = tokens.emplace_back(
        Tensor::empty({of_clip.shape(0), copies, config_.hidden}, dtype_, device_));
    ops::repeat_for_batch(of_clip, repeated);
  }
  Tensor x = ops::join_rows(tokens);
  const Tape::Scope paused(nullptr);  // gradients of x are those of the tokens
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    Tensor of_frame = x.rows(frame * positions, positions);
    ops::add_table(of_frame, placement.positions_);
  }
  return x;
}

// What the first block's attention gets, [token, 1, channel]: both branches begin with the same.
Tensor STDiT::first_input(const STDiTPlacement& placement, const StepInput& step) const {
  const Tensor time = block_time(time_embedding(placement.fps_, step.time));
  const Tensor table = block_table(pairs_.front().spatial, time);
  return modulated(embed_tokens(placement, {&step.latents, 1}, 1), table, attention_shift,
                   attention_scale);
}

double STDiT::change(const STDiTPlacement& placement, const StepInput& now,
                     const StepInput& before) const {
  const Layout layout = placement.layouts_.tokens.with_axis(3, 2);
  const Tensor sums = ops::change_sums(first_input(placement, now), first_input(placement, before))
                          .on(device_.host());
  const Layout whole = Layout::replicated(layout.global(), layout.ranks());
  const comm::Group& group = placement.group();
  const Sharded all = relayout({sums.reshape(own_box(layout, group).extent), layout, group}, whole);
  if (device_.only_shapes) return 0;
  double changes = 0, values = 0;
  const auto tokens = all.local.span<float>();
  for (std::size_t i = 0; i < tokens.size(); i += 2) {
    changes += static_cast<double>(tokens[i]);
    values += static_cast<double>(tokens[i + 1]);
  }
  return changes / values;
}

// time: of time_embedding() → [clip · token, branch, feature].
Tensor STDiT::features(const STDiTPlacement& placement, std::span<const Tensor> latents,
                       std::span<const STDiTContext> contexts, const Tensor& time, Blocks blocks,
                       Tensor& residual) const {
  const std::int64_t clips = placement.clips();
  expect(std::ssize(latents) == clips && std::ssize(contexts) == clips,
         "{} latents and {} texts for {} clips", latents.size(), contexts.size(), clips);
  const Tape::Rows rows(placement.frame_columns());
  const Tensor of_blocks = block_time(time);
  Tensor x = embed_tokens(placement, latents, placement.branches_);
  before_blocks(blocks, x, residual);
  // Of the blocks that are computed again.
  const auto texts =
      std::make_shared<const std::vector<STDiTContext>>(contexts.begin(), contexts.end());
  for (std::size_t i = 0; blocks != Blocks::reuse && i < pairs_.size(); ++i) {
    x = checkpoint(static_cast<int>(i), std::move(x),
                   [this, i, &placement, texts, of_blocks](Tensor in) {
                     return run_pair(i, placement, *texts, of_blocks, std::move(in));
                   });
  }
  after_blocks(blocks, x, residual);
  return out_(modulated(x, output_table(time), 0, 1), ops::Activation::none,
              placement.all_tokens());
}

// features: [token, branch, feature] of a clip; box: the shape of its latents.
Tensor STDiT::latents_of(const Tensor& features, std::int64_t branch, const Shape& box) const {
  const Shape filled = whole_patches(box, config_.patch);
  return resized_latents(ops::unpatchify(features, branch, config_.patch,
                                         {filled[0], config_.out_channels(), filled[2], filled[3]}),
                         box[2], box[3]);
}

std::vector<STDiT::Predictions> STDiT::operator()(const STDiTPlacement& placement,
                                                  std::span<const Tensor> latents,
                                                  std::span<const STDiTContext> contexts,
                                                  const Tensor& sinusoid, Blocks blocks,
                                                  Tensor residual) const {
  const Tensor all = features(placement, latents, contexts,
                              time_embedding(placement.fps_, sinusoid), blocks, residual);
  std::vector<Predictions> predictions;
  for (const Tensor& clip : split_rows(all, placement.clips())) {
    Predictions& both = predictions.emplace_back();
    for (std::size_t branch = 0; branch < both.size(); ++branch) {
      both.at(branch) =
          latents_of(clip, static_cast<std::int64_t>(branch), latents.front().shape());
    }
  }
  return predictions;
}

namespace {

struct STDiTTrainingClip final : TrainableDenoiser::Clip {
  STDiTTrainingClip(const STDiT& model, const DenoiseTask& task)
      : placement(model, task.group, SpaceTime::of(task.layout, model.config().heads),
                  stdit_clip(task), 1, 1) {}
  const TokenColumns& columns() const override { return placement.frame_columns(); }

  STDiTPlacement placement;
};

}  // namespace

std::unique_ptr<const TrainableDenoiser::Clip> STDiT::prepare_training(
    const DenoiseTask& task) const {
  return std::make_unique<STDiTTrainingClip>(*this, task);
}

Tensor STDiT::predict_together(const Clip& clip, const TrainingSample& sample) const {
  const auto& placement = dynamic_cast<const STDiTTrainingClip&>(clip).placement;
  const Tape::Rows rows(placement.frame_columns());
  const std::int64_t tokens = sample.text.shape(0);
  const Tensor caption =
      sample.drops_caption ? null_caption_.rows(0, tokens) : sample.text.on(device_);
  const STDiTContext context = encode_captions(caption.reshape({tokens, 1, config_.text_channels}));
  const Tensor latents = sample.latents.on(device_);
  Tensor no_residual;
  const Tensor fps =
      sample.fps > 0 ? number_embedding(sample.fps, device_.host()).on(device_) : placement.fps_;
  const Tensor time = time_embedding(fps, embed(sample.timestep));
  const Tensor all =
      features(placement, {&latents, 1}, {&context, 1}, time, Blocks::compute, no_residual);
  return latents_of(all, 0, latents.shape());
}

TrainableDenoiser::Example STDiT::example(Device host) const {
  const Shape latents{1, config_.patch.rows, config_.patch.columns};
  DenoiseTask task{.group = comm::Group::pretended(0, 1),
                   .latents = latents,
                   .size = {8 * latents[1], 8 * latents[2], 1}};
  task.layout.mesh = {1, 1, 1};
  task.layout.parts = {1, 1, 1};
  task.layout.tokens = Layout::replicated({1, 1, 1}, 1);
  const Tensor box =
      Tensor::zeros({1, config_.in_channels, latents[1], latents[2]}, DType::float32, host);
  const TrainingSample sample{.latents = box,
                              .target = box,
                              .text = Tensor::zeros({1, 1, config_.text_channels}, dtype_, host),
                              .clean = box};
  return {task, sample};
}

}  // namespace reelmesh
