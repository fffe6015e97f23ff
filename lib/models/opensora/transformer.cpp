#include "models/opensora/transformer.hpp"

#include <algorithm>

#include "base/interruption.hpp"
#include "base/trace.hpp"
#include "layout/space_time.hpp"
#include "models/common/residual.hpp"
#include "ops/attention.hpp"
#include "ops/norm_backward.hpp"

namespace reelmesh {
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
  return out;
}

STDiTContext STDiT::encode_context(const Tensor& text) const {
  const std::int64_t tokens = text.shape(0);
  expect(tokens >= 1 && tokens <= config_.max_text_tokens, "{} tokens of text, expected 1 to {}",
         tokens, config_.max_text_tokens);
  const std::array<Tensor, branches> texts{
      null_caption_.rows(0, tokens).reshape({tokens, 1, config_.text_channels}),
      text.on(device_).reshape({tokens, 1, config_.text_channels})};
  // [token, branch, channel]
  const Tensor both = caption2_.with_all_rows(
      caption1_.with_all_rows(ops::join_batches(texts), ops::Activation::gelu_tanh));
  STDiTContext context;
  const auto add = [&](const Block& block) {
    context.keys_values.push_back(projected_heads(block.text.key_value, both, tokens * branches));
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

// x: [token, branch, channel] → [token, branch, 1 or 2, head, channel].
Tensor STDiT::projected_heads(const ops::Linear& product, const Tensor& x,
                              std::int64_t all_rows) const {
  const std::int64_t parts = product.out_features() / config_.hidden;
  return product(x, ops::Activation::none, all_rows)
      .reshape({x.shape(0), x.shape(1), parts, config_.heads, config_.head_channels()});
}

// Spatial attention: each frame is a sequence. x: [clip · token, branch, channel], frames cut →
// same shape and cut.
Tensor STDiT::within_frames(const Attention& layer, const STDiTPlacement& placement,
                            const Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  Tensor q = projected_heads(layer.query, x, all), kv = projected_heads(layer.key_value, x, all);
  if (config_.kind == STDiTConfig::Kind::v3) {
    ops::normalise_and_rotate(q, layer.query_norm, {}, {});
    ops::normalise_and_rotate(kv, layer.key_norm, {}, {});
  }
  const auto [queries, keys_values] = placement.whole_frames(q, kv);
  const Shape& s = queries.shape();
  const Tensor attended =
      ops::attend(queries.reshape({s[0] * s[1], s[2], s[4], s[5]}),
                  keys_values.reshape({s[0] * s[1], s[2], 2, s[4], s[5]}), scale_, s[0], numerics_);
  return layer.out(placement.own_tokens(attended.reshape(s)).reshape(x.shape()),
                   ops::Activation::none, all);
}

// Temporal attention: each position is a sequence. x: [clip · token, branch, channel], positions
// cut → same shape and cut.
Tensor STDiT::along_time(const Attention& layer, const STDiTPlacement& placement,
                         const Tensor& x) const {
  const Shape& mine = placement.position_cut_extents_;
  const std::int64_t clips = placement.clips();
  const Shape sequences{clips * mine[0], mine[1] * x.shape(1), config_.hidden};
  const std::int64_t all = placement.all_tokens();
  Tensor q = projected_heads(layer.query, x.reshape(sequences), all);
  Tensor kv = projected_heads(layer.key_value, x.reshape(sequences), all);
  if (config_.kind == STDiTConfig::Kind::v3) {
    const auto rotate = [&](Tensor& heads, const ops::HeadNorm& norm) {
      for (Tensor& clip : split_rows(heads, clips)) {
        ops::normalise_and_rotate(clip, norm, placement.rotation_.cosines,
                                  placement.rotation_.sines);
      }
    };
    rotate(q, layer.query_norm);
    rotate(kv, layer.key_norm);
  }
  const Tensor queries =
      q.reshape({sequences[0], sequences[1], config_.heads, config_.head_channels()});
  return layer.out(ops::attend(queries, kv, scale_, clips, numerics_).reshape(x.shape()),
                   ops::Activation::none, all);
}

// keys_values: index into STDiTContext::keys_values. Texts of different clips may differ in length.
void STDiT::attend_to_text(const Block& block, const STDiTPlacement& placement,
                           std::span<const STDiTContext> contexts, std::size_t keys_values,
                           Tensor& x) const {
  const Tensor queries =
      projected_heads(block.text.query, x, placement.all_tokens())
          .reshape({x.shape(0), x.shape(1), config_.heads, config_.head_channels()});
  const std::vector<Tensor> clips = split_rows(queries, std::ssize(contexts));
  const auto attended = [&](std::size_t clip) {
    return ops::attend(clips[clip], contexts[clip].keys_values[keys_values], scale_, 1, numerics_);
  };
  Tensor all;
  if (clips.size() == 1) {
    all = attended(0);
  } else {
    all = Tensor::empty(queries.shape(), queries.dtype(), queries.device());
    std::vector<Tensor> into = split_rows(all, std::ssize(contexts));
    for (std::size_t clip = 0; clip < clips.size(); ++clip) into[clip].copy_from(attended(clip));
  }
  ops::add(x,
           block.text.out(all.reshape(x.shape()), ops::Activation::none, placement.all_tokens()));
}

void STDiT::feed_forward(const Block& block, const STDiTPlacement& placement, const Tensor& table,
                         Tensor& x) const {
  const std::int64_t all = placement.all_tokens();
  const Tensor normed = modulated(x, table, mlp_shift, mlp_scale);
  // Not rounded before the activation, unless that is what gradients are computed from.
  const Tensor hidden = trains_weights_
                            ? ops::gelu_tanh(block.up(normed, ops::Activation::none, all))
                            : block.up(normed, ops::Activation::gelu_tanh, all);
  ops::add_gated(x, block.down(hidden, ops::Activation::none, all), table, mlp_gate);
}

// x [clip · token, branch, channel], positions cut, with the temporal position table of v1.
Tensor STDiT::with_times(const STDiTPlacement& placement, const Tensor& x) const {
  const Shape& mine = placement.position_cut_extents_;
  Tensor timed = x.clone();
  for (const Tensor& clip : split_rows(timed, placement.clips())) {
    Tensor frames = clip.reshape({mine[0], mine[1] * x.shape(1), config_.hidden});
    ops::add_table(frames, placement.times_);
  }
  return timed;
}

// in: [clip · token, branch, channel], frames cut; overwritten. → the same shape and cut.
Tensor STDiT::run_pair(std::size_t index, const STDiTPlacement& placement, Tensor& in,
                       std::span<const STDiTContext> contexts, const Tensor& time) const {
  const auto& [spatial, temporal] = pairs_[index];
  const Tensor table = block_table(spatial, time);
  const Tensor within = within_frames(spatial.attention, placement,
                                      modulated(in, table, attention_shift, attention_scale));
  ops::add_gated(in, within, table, attention_gate);

  Tensor x = placement.to_positions(in);
  if (config_.kind == STDiTConfig::Kind::v3) {
    attend_to_text(spatial, placement, contexts, 2 * index, x);
    feed_forward(spatial, placement, table, x);
    const Tensor second = block_table(temporal, time);
    const Tensor along = along_time(temporal.attention, placement,
                                    modulated(x, second, attention_shift, attention_scale));
    ops::add_gated(x, along, second, attention_gate);
    attend_to_text(temporal, placement, contexts, 2 * index + 1, x);
    feed_forward(temporal, placement, second, x);
  } else {
    // v1's temporal attention reads the stream itself, without norm or modulation. Only the first
    // block adds the temporal position table.
    const Tensor timed = index == 0 ? with_times(placement, x) : x;
    ops::add_gated(x, along_time(temporal.attention, placement, timed), table, attention_gate);
    attend_to_text(spatial, placement, contexts, index, x);
    feed_forward(spatial, placement, table, x);
  }
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

// The embedding of timestep and, in v3, frame rate.
Tensor STDiT::time_embedding(const STDiTPlacement& placement, const Tensor& sinusoid) const {
  Tensor time = time2_.with_all_rows(time1_.with_all_rows(sinusoid, ops::Activation::silu));
  if (config_.kind == STDiTConfig::Kind::v3) {
    ops::add(time, fps2_.with_all_rows(
                       fps1_.with_all_rows(placement.fps_.to(dtype_), ops::Activation::silu)));
  }
  return time;
}

// What all blocks add to their modulation tables.
Tensor STDiT::block_time(const Tensor& time) const {
  return time_block_.with_all_rows(ops::silu(time));
}

// The modulation table of a block, [1, 6 · channel]. time: from block_time().
Tensor STDiT::block_table(const Block& block, const Tensor& time) const {
  Tensor table = block.table.reshape({1, table_chunks * config_.hidden}).clone();
  ops::add(table, time);
  return table;
}

// That of the last layer, [1, 2 · channel]. time: from time_embedding().
Tensor STDiT::output_table(const Tensor& time) const {
  Tensor table = out_table_.clone();
  for (std::int64_t chunk = 0; chunk < 2; ++chunk) {
    Tensor row = table.rows(chunk, 1);
    ops::add(row, time);
  }
  return table.reshape({1, 2 * config_.hidden});
}

// The tokens of each clip with their spatial positions → [clip · token, copy, channel], frames cut.
Tensor STDiT::embed_tokens(const STDiTPlacement& placement, std::span<const Tensor> latents,
                           std::int64_t copies) const {
  const std::int64_t frames = placement.clips() * placement.frames();
  const std::int64_t positions = placement.positions();
  const Shape filled = whole_patches(latents.front().shape(), config_.patch);
  Tensor x = Tensor::empty({frames * positions, copies, config_.hidden}, dtype_, device_);
  std::vector<Tensor> tokens = split_rows(x, placement.clips());
  for (std::size_t clip = 0; clip < latents.size(); ++clip) {
    const Tensor all = resized_latents(latents[clip], filled[2], filled[3]);
    ops::repeat_for_batch(patch_(ops::patchify(all, config_.patch, dtype_), ops::Activation::none,
                                 placement.all_tokens()),
                          tokens[clip]);
  }
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    Tensor of_frame = x.rows(frame * positions, positions);
    ops::add_table(of_frame, placement.positions_);
  }
  return x;
}

// What the first block's attention gets, [token, 1, channel]: both branches begin with the same.
Tensor STDiT::first_input(const STDiTPlacement& placement, const StepInput& step) const {
  const Tensor time = block_time(time_embedding(placement, step.time));
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

std::vector<STDiT::Predictions> STDiT::operator()(const STDiTPlacement& placement,
                                                  std::span<const Tensor> latents,
                                                  std::span<const STDiTContext> contexts,
                                                  const Tensor& sinusoid, Blocks blocks,
                                                  Tensor residual) const {
  const std::int64_t clips = placement.clips();
  expect(std::ssize(latents) == clips && std::ssize(contexts) == clips,
         "{} latents and {} texts for {} clips", latents.size(), contexts.size(), clips);
  const Tensor time = time_embedding(placement, sinusoid), of_blocks = block_time(time);
  Tensor x = embed_tokens(placement, latents, branches);
  before_blocks(blocks, x, residual);
  for (std::size_t i = 0; blocks != Blocks::reuse && i < pairs_.size(); ++i) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope(trace::spans::transformer_block);
    x = run_pair(i, placement, x, contexts, of_blocks);
  }
  after_blocks(blocks, x, residual);
  const Tensor features =
      out_(modulated(x, output_table(time), 0, 1), ops::Activation::none, placement.all_tokens());
  const Shape& box = latents.front().shape();
  const Shape filled = whole_patches(box, config_.patch);
  const Shape extents{filled[0], config_.out_channels(), filled[2], filled[3]};
  std::vector<Predictions> predictions;
  for (const Tensor& clip : split_rows(features, clips)) {
    Predictions& both = predictions.emplace_back();
    for (std::size_t branch = 0; branch < both.size(); ++branch) {
      both.at(branch) = resized_latents(
          ops::unpatchify(clip, static_cast<std::int64_t>(branch), config_.patch, extents), box[2],
          box[3]);
    }
  }
  return predictions;
}

}  // namespace reelmesh
