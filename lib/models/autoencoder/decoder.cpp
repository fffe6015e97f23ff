#include "models/autoencoder/decoder.hpp"

#include "layout/items.hpp"
#include "models/common/channels_last.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {
namespace {

// x·factor + offset for each channel, rounded once. x: […, channel], on the host.
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

OpenSoraDecoder::OpenSoraDecoder(const Checkpoint& weights, const OpenSoraVaeConfig& config,
                                 DType dtype, std::vector<double> speeds)
    : config_(config),
      dtype_(dtype),
      device_(weights.device()),
      speeds_(std::move(speeds)),
      image_(weights, config.image, dtype) {
  if (!config.temporal) return;
  const std::int64_t channels = config.temporal->channels;
  const auto load = [&](const char* name) {
    const Tensor values =
        weights.load(name, {1, channels, 1, 1, 1}, dtype).to(DType::float32).on({});
    return std::vector<float>(values.span<float>().begin(), values.span<float>().end());
  };
  scale_ = load("scale");
  shift_ = load("shift");
  temporal_.emplace(weights, *config.temporal, dtype);
}

Layout OpenSoraDecoder::layout(const OpenSoraVaeConfig& config, const Shape& latents, int ranks,
                               const std::vector<double>& speeds) {
  const std::int64_t size = config.temporal ? config.temporal->micro_latents() : 1;
  return item_layout({latents.at(0), latents.at(2), latents.at(3)}, size, ranks, speeds)
      .with_axis(1, latents.at(1));
}

// Groups of frames one after the other → latents of single frames [frame, row, column, channel], in
// the layout of the images.
Sharded OpenSoraDecoder::in_time(const Sharded& latents, std::int64_t frames) const {
  const Shape& shape = latents.layout.global();
  const int ranks = latents.layout.ranks();
  const std::int64_t micro = config_.temporal->micro_frames;
  const std::int64_t micro_latents = config_.temporal->micro_latents();
  const auto layout_of = [&](std::int64_t count, std::int64_t size) {
    return item_layout({count, shape[2], shape[3]}, size, ranks, speeds_).with_axis(3, shape[1]);
  };
  const Layout groups = layout_of(shape[0], micro_latents), out = layout_of(frames, micro);
  const Tensor whole = channels_last(latents.local.on({}), 1.0F, dtype_);
  const Sharded mine{scaled_channels(whole, scale_, shift_).on(device_), groups, latents.group};
  const Sharded decoded{Tensor::empty(own_box(out, latents.group).extent, dtype_, device_), out,
                        latents.group};
  const ImagePart part(mine.group, pixels_of_own_items(mine.layout, mine.group));
  for (std::int64_t first = 0, done = 0; first < mine.local.shape(0) && !mine.local.empty();
       first += micro_latents) {
    const Tensor group =
        mine.local.rows(first, std::min(micro_latents, mine.local.shape(0) - first));
    const std::int64_t count = std::min(micro, decoded.local.shape(0) - done);
    decoded.local.rows(done, count).copy_from((*temporal_)(part, group, count));
    done += count;
  }
  return relayout(decoded, layout_of(frames, 1));
}

Sharded OpenSoraDecoder::decode(const Sharded& latents, std::int64_t frames, DType stored,
                                const Store& store) const {
  const Shape& shape = latents.layout.global();
  const std::int64_t factor = config_.image.compression();
  expect(shape.size() == 4 && config_.latent_frames(frames) == shape[0] &&
             latents.layout == layout(config_, shape, latents.layout.ranks(), speeds_),
         "decoding {} frames from latents {}", frames, to_string(latents.layout));
  const Layout images =
      item_layout({frames, shape[2], shape[3]}, 1, latents.layout.ranks(), speeds_);
  const Layout video = images.scaled(1, factor).scaled(2, factor).with_axis(3, 3);
  const Sharded mine = temporal_
                           ? in_time(latents, frames)
                           : Sharded{channels_last(latents.local.on({}), 1.0F, dtype_).on(device_),
                                     images.with_axis(3, shape[1]), latents.group};
  const Sharded out{Tensor::empty(own_box(video, latents.group).extent, stored), video,
                    latents.group};
  if (mine.local.empty()) return out;
  const auto inverse = static_cast<float>(1 / config_.scaling_factor);
  const ImagePart part(mine.group, pixels_of_own_items(mine.layout, mine.group));
  for (std::int64_t frame = 0; frame < mine.local.shape(0); ++frame) {
    const Tensor image = image_(part, ops::scaled(mine.local.rows(frame, 1), inverse));
    out.local.rows(frame, 1).copy_from(store(image));
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
