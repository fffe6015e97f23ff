#include "models/opensora/placement.hpp"

#include <algorithm>
#include <iterator>

#include "models/opensora/transformer.hpp"
#include "ops/attention.hpp"
#include "ops/rows.hpp"

namespace reelmesh {

Shape STDiTClip::tokens(const ops::Patch& patch) const {
  return {latents.at(0), (latents.at(1) + patch.rows - 1) / patch.rows,
          (latents.at(2) + patch.columns - 1) / patch.columns};
}

STDiTClip stdit_clip(const DenoiseTask& task) {
  constexpr double fps_of_images = 120;
  return {task.latents, task.size.height, task.size.width,
          task.size.frames > 1 ? task.fps : fps_of_images};
}

STDiTPlacement::STDiTPlacement(const STDiT& model, const comm::Group& group,
                               const SpaceTime& layouts, const STDiTClip& clip, std::int64_t clips,
                               std::int64_t branches)
    : group_(group),
      layouts_(layouts),
      clip_(clip),
      clips_(clips),
      branches_(branches),
      patch_(model.config().patch),
      frame_columns_(group, {layouts.spatial}, model.config().head_channels()),
      position_columns_(group, {layouts.temporal}, model.config().head_channels()),
      frame_cut_extents_(own_box(layouts.spatial, group).extent),
      position_cut_extents_(own_box(layouts.temporal, group).extent),
      heads_(model.config().heads) {
  const STDiTConfig& config = model.config();
  const Device device = model.device();
  expect(layouts.tokens.global() == clip.tokens(patch_), "layouts of {} for tokens {}",
         layouts.tokens.global(), to_string(clip.tokens(patch_)));
  positions_ = spatial_positions(config, layouts.tokens.global(), own_box(layouts.tokens, group),
                                 clip.height, clip.width, device.host())
                   .reshape({positions(), config.hidden})
                   .on(device);
  if (config.kind == STDiTConfig::Kind::v1) {
    times_ = time_positions(config, clip.latents[0], device.host()).on(device);
  } else {
    fps_ = number_embedding(clip.fps, device.host()).on(device);
    rotation_ = temporal_rotary_tables(model.frequencies(), clip.latents[0]);
    rotation_ = {rotation_.cosines.on(device), rotation_.sines.on(device)};
  }
  set_exchanges(config);
  const bool by_heads = to_heads_.has_value();
  const Shape& whole = by_heads ? in_heads_ : frame_cut_extents_;
  const ops::AttentionShape spatial{.dtype = model.dtype(),
                                    .sequences = clips * whole[0],
                                    .batch = branches,
                                    .heads = by_heads ? whole[2] : heads_,
                                    .channels = config.head_channels(),
                                    .queries = whole[1],
                                    .keys = whole[1]};
  prepare_attend(group, device, spatial.dtype, spatial.keys, spatial.channels, {&spatial, 1},
                 model.numerics());
}

void STDiTPlacement::set_exchanges(const STDiTConfig& config) {
  if (group_.size() == 1) return;
  const Layout frames = layouts_.spatial.with_axis(2, branches_ * config.hidden);
  const Layout positions = layouts_.temporal.with_axis(2, branches_ * config.hidden);
  const auto count = static_cast<std::size_t>(clips_);
  to_positions_.emplace(group_, std::vector<Move>(count, {frames, positions}));
  to_frames_.emplace(group_, std::vector<Move>(count, {positions, frames}));
  if (layouts_.frames_are_whole()) return;

  // [frame, position, branch, part, head, channel]
  const auto with_parts = [&](const Layout& layout, std::int64_t parts) {
    return layout.with_axis(2, branches_).with_axis(3, parts).with_axis(5, config.head_channels());
  };
  const auto& [tokens, heads] = *layouts_.by_heads;
  in_heads_ = own_box(heads, group_).extent;
  std::vector<Move> queries_and_keys(count, {with_parts(tokens, 1), with_parts(heads, 1)});
  queries_and_keys.resize(2 * count, {with_parts(tokens, 2), with_parts(heads, 2)});
  to_heads_.emplace(group_, std::move(queries_and_keys));
  part_to_heads_.emplace(group_,
                         std::vector<Move>(count, {with_parts(tokens, 1), with_parts(heads, 1)}));
  to_tokens_.emplace(group_,
                     std::vector<Move>(count, {with_parts(heads, 1), with_parts(tokens, 1)}));
}

std::int64_t STDiTPlacement::sent_elements() const {
  std::int64_t elements = 0;
  for (const auto* exchange : {&to_positions_, &to_frames_, &to_heads_, &to_tokens_}) {
    if (*exchange) elements += (*exchange)->sent_elements();
  }
  return elements;
}

std::vector<Tensor> split_rows(const Tensor& x, std::int64_t parts) {
  std::vector<Tensor> all;
  if (parts == 0) return all;
  if (parts == 1) return {x};
  expect(x.shape(0) % parts == 0, "rows of {} do not divide into {} parts", x.shape(), parts);
  const std::int64_t rows = x.shape(0) / parts;
  for (std::int64_t part = 0; part < parts; ++part) all.push_back(x.rows(part * rows, rows));
  return all;
}

namespace {

// x: [clip · token, branch, channel]; into: extents [frame, position] of a clip in the result.
Tensor moved(const Exchange& exchange, const Tensor& x, const Shape& into, std::int64_t clips) {
  Tensor out =
      Tensor::empty({clips * into[0] * into[1], x.shape(1), x.shape(2)}, x.dtype(), x.device());
  std::vector<Tensor> targets = split_rows(out, clips);
  exchange.run(split_rows(x, clips), targets);
  return out;
}

// Its gradient takes the way back. from: extents of a clip in x.
Tensor moved_on_tape(const Exchange& exchange, const Exchange& back, const Tensor& x,
                     const Shape& from, const Shape& into, std::int64_t clips) {
  Tape* tape = Tape::of(x);
  if (tape == nullptr) return moved(exchange, x, into, clips);
  Tensor out;
  if (tape->skips_sum()) {
    out = Tensor::empty({clips * into[0] * into[1], x.shape(1), x.shape(2)}, x.dtype(), x.device());
  } else {
    out = moved(exchange, x, into, clips);
  }
  tape->record(out,
               [tape, &back, x = TapeValue(x), from, clips, shape = out.shape()](const Tensor& d) {
                 ops::add_gradient(*tape, x, moved(back, d.reshape(shape), from, clips));
               });
  return out;
}

}  // namespace

Tensor STDiTPlacement::to_positions(const Tensor& x) const {
  if (!to_positions_) return x;
  return moved_on_tape(*to_positions_, *to_frames_, x, frame_cut_extents_, position_cut_extents_,
                       clips_);
}

Tensor STDiTPlacement::to_frames(const Tensor& x) const {
  if (!to_frames_) return x;
  return moved_on_tape(*to_frames_, *to_positions_, x, position_cut_extents_, frame_cut_extents_,
                       clips_);
}

namespace {

// [token, batch, 1, head, channel] → [token, batch, head, channel].
Tensor without_part(const Tensor& q) {
  const Shape& s = q.shape();
  return q.reshape({s[0], s[1], s[3], s[4]});
}

}  // namespace

Tensor STDiTPlacement::within_frames(const Tensor& q, const Tensor& kv, float scale,
                                     const Numerics& numerics) const {
  if (Tape::recording() == nullptr) {
    const auto [queries, keys_values] = whole_frames(q, kv);
    const Shape& s = queries.shape();
    const Tensor attended =
        ops::attend(queries.reshape({s[0] * s[1], s[2], s[4], s[5]}),
                    keys_values.reshape({s[0] * s[1], s[2], 2, s[4], s[5]}), scale, s[0], numerics);
    return own_tokens(attended.reshape(s)).reshape(q.shape());
  }
  const Shape& whole = to_heads_ ? in_heads_ : frame_cut_extents_;
  SequenceMoves moves;
  if (to_heads_) {
    const auto run = [](const Exchange& exchange, const Tensor& x, const Shape& shape) {
      Tensor out = Tensor::empty(shape, x.dtype(), x.device());
      exchange.run({x}, {&out, 1});
      return out;
    };
    const std::int64_t channels = q.shape(4);
    const Shape heads{whole[0] * whole[1], whole[2] * channels};
    const Shape tokens{frames() * positions(), heads_ * channels};
    moves.to_whole = [this, run, heads](const Tensor& x) { return run(*part_to_heads_, x, heads); };
    moves.to_own = [this, run, tokens](const Tensor& x) { return run(*to_tokens_, x, tokens); };
  }
  return attend_recorded_together(without_part(q), kv, scale, numerics,
                                  std::max<std::int64_t>(whole[0], 1), moves, moves)
      .reshape(q.shape());
}

Tensor STDiTPlacement::along_time(const Tensor& q, const Tensor& kv, float scale,
                                  const Numerics& numerics) const {
  const Tensor queries = without_part(q);
  const Tensor attended =
      Tape::recording() != nullptr
          ? attend_recorded_together(queries, kv, scale, numerics, clips_, {}, {})
          : ops::attend(queries, kv, scale, clips_, numerics);
  return attended.reshape(q.shape());
}

Tensor STDiTPlacement::to_texts(const Tensor& q, std::span<const Tensor> texts, float scale,
                                const Numerics& numerics) const {
  const Tensor queries = without_part(q);
  const std::vector<Tensor> clips = split_rows(queries, std::ssize(texts));
  if (clips.size() == 1) {
    return attend_to_whole_together(position_columns_, queries, texts[0], scale, numerics)
        .reshape(q.shape());
  }
  Tensor all = Tensor::empty(queries.shape(), queries.dtype(), queries.device());
  std::vector<Tensor> into = split_rows(all, std::ssize(texts));
  for (std::size_t clip = 0; clip < clips.size(); ++clip) {
    into[clip].copy_from(ops::attend(clips[clip], texts[clip], scale, 1, numerics));
  }
  return all.reshape(q.shape());
}

std::pair<Tensor, Tensor> STDiTPlacement::whole_frames(const Tensor& q, const Tensor& kv) const {
  const Shape& have = q.shape();
  const auto shape = [&](const Shape& extents, std::int64_t heads, std::int64_t parts) {
    return Shape{clips_ * extents[0], extents[1], have[1], parts, heads, have[4]};
  };
  if (!to_heads_) {
    return {q.reshape(shape(frame_cut_extents_, heads_, 1)),
            kv.reshape(shape(frame_cut_extents_, heads_, 2))};
  }
  const auto empty = [&](std::int64_t parts) {
    return Tensor::empty(shape(in_heads_, in_heads_[2], parts), q.dtype(), q.device());
  };
  std::pair<Tensor, Tensor> whole{empty(1), empty(2)};
  const auto parts = [&](const Tensor& queries, const Tensor& keys_values) {
    std::vector<Tensor> all = split_rows(queries, clips_);
    std::ranges::copy(split_rows(keys_values, clips_), std::back_inserter(all));
    return all;
  };
  std::vector<Tensor> targets = parts(whole.first, whole.second);
  to_heads_->run(parts(q, kv), targets);
  return whole;
}

Tensor STDiTPlacement::own_tokens(const Tensor& x) const {
  if (!to_tokens_) return x;
  Tensor out = Tensor::empty({clips_ * positions() * frames(), x.shape(2), 1, heads_, x.shape(5)},
                             x.dtype(), x.device());
  std::vector<Tensor> targets = split_rows(out, clips_);
  to_tokens_->run(split_rows(x, clips_), targets);
  return out;
}

}  // namespace reelmesh
