#include "models/opensora/placement.hpp"

#include <algorithm>
#include <iterator>

#include "models/opensora/transformer.hpp"

namespace reelmesh {

Shape STDiTClip::tokens(const ops::Patch& patch) const {
  return {latents.at(0), (latents.at(1) + patch.rows - 1) / patch.rows,
          (latents.at(2) + patch.columns - 1) / patch.columns};
}

STDiTPlacement::STDiTPlacement(const STDiTConfig& config, const comm::Group& group,
                               const SpaceTime& layouts, const STDiTClip& clip, std::int64_t clips,
                               Device device)
    : group_(group),
      layouts_(layouts),
      clip_(clip),
      clips_(clips),
      patch_(config.patch),
      in_frames_(own_box(layouts.frames, group).extent),
      in_places_(own_box(layouts.places, group).extent),
      heads_(config.heads) {
  expect(layouts.grid.global() == clip.tokens(patch_), "layouts of {} for tokens {}",
         to_string(layouts.grid.global()), to_string(clip.tokens(patch_)));
  positions_ = place_positions(config, layouts.grid.global(), own_box(layouts.grid, group),
                               clip.height, clip.width)
                   .reshape({places(), config.hidden})
                   .on(device);
  if (config.kind == STDiTConfig::Kind::v1) {
    times_ = time_positions(config, clip.latents[0]).on(device);
  } else {
    fps_ = number_embedding(clip.fps).on(device);
  }
  if (group.size() == 1) return;

  constexpr std::int64_t branches = STDiT::branches;
  const Layout frames = layouts.frames.with_axis(2, branches * config.hidden);
  const Layout places = layouts.places.with_axis(2, branches * config.hidden);
  const auto count = static_cast<std::size_t>(clips);
  to_places_.emplace(group, std::vector<Move>(count, {frames, places}));
  to_frames_.emplace(group, std::vector<Move>(count, {places, frames}));
  if (layouts.frames_are_whole()) return;

  // [frame, place, branch, part, head, channel]
  const auto with_parts = [&](const Layout& layout, std::int64_t parts) {
    return layout.with_axis(2, branches).with_axis(3, parts).with_axis(5, config.head_channels());
  };
  const Layout tokens = layouts.frames_with_heads(config.heads),
               heads = layouts.heads(config.heads);
  in_heads_ = own_box(heads, group).extent;
  std::vector<Move> queries_and_keys(count, {with_parts(tokens, 1), with_parts(heads, 1)});
  queries_and_keys.resize(2 * count, {with_parts(tokens, 2), with_parts(heads, 2)});
  to_heads_.emplace(group, std::move(queries_and_keys));
  to_tokens_.emplace(group,
                     std::vector<Move>(count, {with_parts(heads, 1), with_parts(tokens, 1)}));
}

Layout latents_layout(const SpaceTime& layouts, const STDiTClip& clip, const ops::Patch& patch,
                      std::int64_t channels) {
  const Shape& global = clip.latents;
  const Shape size{1, patch.rows, patch.columns};
  std::vector<Box> boxes;
  for (int r = 0; r < layouts.grid.ranks(); ++r) {
    const Box& box = layouts.grid.box(r);
    Box latents{Shape(3), Shape(3)};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      latents.offset[axis] = std::min(global[axis], box.offset[axis] * size[axis]);
      latents.extent[axis] =
          std::min(global[axis], box.end(axis) * size[axis]) - latents.offset[axis];
    }
    boxes.push_back(std::move(latents));
  }
  return Layout(global, std::move(boxes)).with_axis(1, channels);
}

Layout STDiTPlacement::latents(std::int64_t channels) const {
  return latents_layout(layouts_, clip_, patch_, channels);
}

std::int64_t STDiTPlacement::sent_elements() const {
  std::int64_t elements = 0;
  for (const auto* exchange : {&to_places_, &to_frames_, &to_heads_, &to_tokens_}) {
    if (*exchange) elements += (*exchange)->sent_elements();
  }
  return elements;
}

std::vector<Tensor> row_parts(const Tensor& x, std::int64_t parts) {
  std::vector<Tensor> all;
  if (parts == 0) return all;
  expect(x.shape(0) % parts == 0, "{} in {} parts", to_string(x.shape()), parts);
  const std::int64_t rows = x.shape(0) / parts;
  for (std::int64_t part = 0; part < parts; ++part) all.push_back(x.rows(part * rows, rows));
  return all;
}

namespace {

// x: [clip · token, branch, channel]; into: extents [frame, place] of a clip.
Tensor moved(const Exchange& exchange, const Tensor& x, const Shape& into, std::int64_t clips) {
  Tensor out =
      Tensor::empty({clips * into[0] * into[1], x.shape(1), x.shape(2)}, x.dtype(), x.device());
  exchange.run(row_parts(x, clips), row_parts(out, clips));
  return out;
}

}  // namespace

Tensor STDiTPlacement::to_places(const Tensor& x) const {
  return to_places_ ? moved(*to_places_, x, in_places_, clips_) : x;
}

Tensor STDiTPlacement::to_frames(const Tensor& x) const {
  return to_frames_ ? moved(*to_frames_, x, in_frames_, clips_) : x;
}

std::pair<Tensor, Tensor> STDiTPlacement::whole_frames(const Tensor& q, const Tensor& kv) const {
  const Shape& have = q.shape();
  const auto shape = [&](const Shape& extents, std::int64_t heads, std::int64_t parts) {
    return Shape{clips_ * extents[0], extents[1], have[1], parts, heads, have[4]};
  };
  if (!to_heads_) {
    return {q.reshape(shape(in_frames_, heads_, 1)), kv.reshape(shape(in_frames_, heads_, 2))};
  }
  const auto empty = [&](std::int64_t parts) {
    return Tensor::empty(shape(in_heads_, in_heads_[2], parts), q.dtype(), q.device());
  };
  std::pair<Tensor, Tensor> whole{empty(1), empty(2)};
  const auto parts = [&](const Tensor& queries, const Tensor& keys_values) {
    std::vector<Tensor> all = row_parts(queries, clips_);
    std::ranges::copy(row_parts(keys_values, clips_), std::back_inserter(all));
    return all;
  };
  to_heads_->run(parts(q, kv), parts(whole.first, whole.second));
  return whole;
}

Tensor STDiTPlacement::own_tokens(const Tensor& x) const {
  if (!to_tokens_) return x;
  Tensor out = Tensor::empty({clips_ * places() * frames(), x.shape(2), 1, heads_, x.shape(5)},
                             x.dtype(), x.device());
  to_tokens_->run(row_parts(x, clips_), row_parts(out, clips_));
  return out;
}

}  // namespace reelmesh
