#include "models/autoencoder/decoder.hpp"

#include <cstring>

#include "layout/relayout.hpp"
#include "models/common/channels_last.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {
namespace {

// Items cut, then rows: [frame, row] boxes for ranks, where item i has the frames from i·size on.
// Extra axes are whole.
Layout item_layout(std::int64_t frames, std::int64_t size, std::int64_t rows, int ranks) {
  const std::int64_t items = (frames + size - 1) / size;
  const ItemCut cut = cut_items(items, rows, ranks);
  const Layout by_item =
      Layout::grid({items, rows}, {cut.items, cut.rows}).embed(0, ranks).scaled(0, size);
  std::vector<Box> boxes;
  for (int r = 0; r < ranks; ++r) {
    Box box = by_item.box(r);
    box.extent[0] = std::min(box.extent[0], frames - box.offset[0]);
    boxes.push_back(std::move(box));
  }
  return {{frames, rows}, std::move(boxes)};
}

// [frame, row, column, channel] for the decoders.
Layout with_pixels(const Layout& frames_and_rows, std::int64_t columns, std::int64_t channels) {
  return frames_and_rows.with_axis(2, columns).with_axis(3, channels);
}

// The rows of the frames that this rank works on; axes: [frame, row, …].
ImageRows own_rows(const Sharded& x) {
  const Box& mine = x.box();
  std::vector<Box> rows;
  for (int r = 0; r < x.layout.ranks(); ++r) {
    const Box& box = x.layout.box(r);
    const bool together = !box.empty() && box.offset[0] == mine.offset[0];
    rows.push_back({{box.offset[1]}, {together ? box.extent[1] : 0}});
  }
  return {x.group, {{x.layout.global()[1]}, std::move(rows)}};
}

// x·factor + offset for each channel, rounded once. x: […, channel].
Tensor scaled_channels(const Tensor& x, const std::vector<float>& factor,
                       const std::vector<float>& offset) {
  Tensor out = x.to(DType::float32).clone();
  const auto channels = static_cast<std::size_t>(x.shape().back());
  float* values = out.data<float>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(out.numel()); ++i) {
    values[i] = values[i] * factor[i % channels] + offset[i % channels];
  }
  return out.to(x.dtype());
}

}  // namespace

ItemCut cut_items(std::int64_t items, std::int64_t rows, int ranks) {
  const auto largest = [](std::int64_t n, std::int64_t parts) { return (n + parts - 1) / parts; };
  ItemCut best;
  std::int64_t least = -1;
  for (int by_rows = 1; by_rows <= std::min<std::int64_t>(ranks, rows); ++by_rows) {
    const auto by_items = static_cast<int>(std::min<std::int64_t>(ranks / by_rows, items));
    const std::int64_t work =
        largest(items, by_items) * (largest(rows, by_rows) + (by_rows > 1 ? 1 : 0));
    if (least < 0 || work < least) {
      least = work;
      best = {by_items, by_rows};
    }
  }
  return best;
}

OpenSoraDecoder::OpenSoraDecoder(const Checkpoint& weights, const OpenSoraVaeConfig& config,
                                 DType dtype)
    : config_(config), dtype_(dtype), image_(weights, config.image, dtype) {
  if (!config.temporal) return;
  const std::int64_t channels = config.temporal->channels;
  const auto load = [&](const char* name) {
    const Tensor values = weights.load(name, {1, channels, 1, 1, 1}, dtype).to(DType::float32);
    return std::vector<float>(values.span<float>().begin(), values.span<float>().end());
  };
  scale_ = load("scale");
  shift_ = load("shift");
  temporal_.emplace(weights, *config.temporal, dtype);
}

Layout OpenSoraDecoder::layout(const OpenSoraVaeConfig& config, const Shape& latents, int ranks) {
  const std::int64_t size = config.temporal ? config.temporal->micro_latents() : 1;
  return item_layout(latents.at(0), size, latents.at(2), ranks)
      .with_axis(1, latents.at(1))
      .with_axis(3, latents.at(3));
}

// Groups of frames one after the other → latents of single frames [frame, row, column, channel], in
// the layout of the images.
Sharded OpenSoraDecoder::in_time(const Sharded& latents, std::int64_t frames) const {
  const Shape& shape = latents.layout.global();
  const int ranks = latents.layout.ranks();
  const std::int64_t micro = config_.temporal->micro_frames;
  const std::int64_t micro_latents = config_.temporal->micro_latents();
  const auto layout_of = [&](std::int64_t count, std::int64_t size) {
    return with_pixels(item_layout(count, size, shape[2], ranks), shape[3], shape[1]);
  };
  const Layout groups = layout_of(shape[0], micro_latents), out = layout_of(frames, micro);
  const Sharded mine{scaled_channels(channels_last(latents.local, 1.0F, dtype_), scale_, shift_),
                     groups, latents.group};
  const Sharded decoded{Tensor::empty(own_box(out, latents.group).extent, dtype_), out,
                        latents.group};
  const ImageRows rows = own_rows(mine);
  for (std::int64_t first = 0, done = 0; first < mine.local.shape(0) && !mine.local.empty();
       first += micro_latents) {
    const Tensor group =
        mine.local.rows(first, std::min(micro_latents, mine.local.shape(0) - first));
    const std::int64_t count = std::min(micro, decoded.local.shape(0) - done);
    const Tensor result = (*temporal_)(rows, group, count);
    std::memcpy(decoded.local.rows(done, count).raw(), result.raw(),
                static_cast<std::size_t>(result.bytes()));
    done += count;
  }
  return relayout(decoded, layout_of(frames, 1));
}

Sharded OpenSoraDecoder::decode(const Sharded& latents, std::int64_t frames, DType stored,
                                const Store& store) const {
  const Shape& shape = latents.layout.global();
  const std::int64_t factor = config_.image.compression();
  expect(shape.size() == 4 && config_.latent_frames(frames) == shape[0] &&
             latents.layout == layout(config_, shape, latents.layout.ranks()),
         "decoding {} frames from latents {}", frames, to_string(latents.layout));
  const Layout images = item_layout(frames, 1, shape[2], latents.layout.ranks());
  const Layout video = with_pixels(images.scaled(1, factor), shape[3] * factor, 3);
  const Sharded mine = temporal_ ? in_time(latents, frames)
                                 : Sharded{channels_last(latents.local, 1.0F, dtype_),
                                           with_pixels(images, shape[3], shape[1]), latents.group};
  const Sharded out{Tensor::empty(own_box(video, latents.group).extent, stored), video,
                    latents.group};
  if (mine.local.empty()) return out;
  const auto channels = static_cast<std::size_t>(shape[1]);
  const std::vector<float> inverse(channels, static_cast<float>(1 / config_.scaling_factor));
  const std::vector<float> zeros(channels, 0.0F);
  const ImageRows rows = own_rows(mine);
  for (std::int64_t frame = 0; frame < mine.local.shape(0); ++frame) {
    const Tensor image =
        store(image_(rows, scaled_channels(mine.local.rows(frame, 1), inverse, zeros)));
    std::memcpy(out.local.rows(frame, 1).raw(), image.raw(),
                static_cast<std::size_t>(image.bytes()));
  }
  return out;
}

Sharded OpenSoraDecoder::pixels(const Sharded& latents, std::int64_t frames) const {
  return decode(latents, frames, DType::uint8, ops::to_pixels);
}

Sharded OpenSoraDecoder::video(const Sharded& latents, std::int64_t frames) const {
  return decode(latents, frames, DType::float32,
                [](const Tensor& image) { return image.to(DType::float32); });
}

std::int64_t OpenSoraDecoder::bytes() const {
  return image_.bytes() + (temporal_ ? temporal_->bytes() : 0);
}

}  // namespace reelmesh
