#include "models/autoencoder/decoder.hpp"

#include "layout/relayout.hpp"
#include "models/common/channels_last.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {
namespace {

// x·factor + offset for each channel, rounded once. x: […, channel], on the host.
Tensor scaled_channels(const Tensor& x, const std::vector<float>& factor,
                       const std::vector<float>& offset) {
  Tensor out = x.to(DType::float32).clone();
  if (out.device().only_shapes) return out.to(x.dtype());
  const auto channels = static_cast<std::size_t>(x.shape().back());
  float* values = out.data<float>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(out.numel()); ++i) {
    values[i] = values[i] * factor[i % channels] + offset[i % channels];
  }
  return out.to(x.dtype());
}

}  // namespace

OpenSoraDecoder::OpenSoraDecoder(const Checkpoint& weights, const OpenSoraVaeConfig& config,
                                 DType dtype)
    : config_(config),
      dtype_(dtype),
      device_(weights.device()),
      image_(weights, config.image, dtype) {
  if (!config.temporal) return;
  const Shape shape{1, config.temporal->channels, 1, 1, 1};
  scale_ = load_channel_values(weights, "scale", shape, dtype);
  shift_ = load_channel_values(weights, "shift", shape, dtype);
  temporal_.emplace(weights, *config.temporal, dtype);
}

// Decodes groups of frames one after the other → latents of single frames [frame, row, column,
// channel], distributed as layout.images.
Sharded OpenSoraDecoder::decode_temporal(const Sharded& latents, const DecodeLayout& layout) const {
  const std::int64_t channels = latents.layout.global()[1];
  const std::int64_t micro = config_.temporal->micro_frames;
  const std::int64_t micro_latents = config_.temporal->micro_latents();
  const Layout out = layout.frames.with_axis(3, channels);
  const Tensor whole = channels_last(latents.local.on(device_.host()), 1.0F, dtype_);
  const Tensor mine = scaled_channels(whole, scale_, shift_).on(device_);
  const Sharded decoded{Tensor::empty(own_box(out, latents.group).extent, dtype_, device_), out,
                        latents.group};
  const std::optional<ImagePart> part = ImagePart::of(latents.group, layout.latents);
  for (std::int64_t first = 0, done = 0; part && first < mine.shape(0); first += micro_latents) {
    const Tensor group = mine.rows(first, std::min(micro_latents, mine.shape(0) - first));
    const std::int64_t count = std::min(micro, decoded.local.shape(0) - done);
    decoded.local.rows(done, count).copy_from((*temporal_)(*part, group, count));
    done += count;
  }
  return relayout(decoded, layout.images.with_axis(3, channels));
}

Sharded OpenSoraDecoder::decode(const Sharded& latents, const DecodeLayout& layout, DType stored,
                                const Store& store) const {
  const std::int64_t channels = latents.layout.global()[1], factor = config_.image.compression();
  expect(config_.latent_frames(layout.images.global()[0]) == latents.layout.global()[0] &&
             latents.layout == layout.latents.with_axis(1, channels),
         "decoding {} frames from latents {}", layout.images.global()[0],
         to_string(latents.layout));
  const Layout video = layout.images.scaled(1, factor).scaled(2, factor).with_axis(3, 3);
  const Sharded mine =
      temporal_ ? decode_temporal(latents, layout)
                : Sharded{channels_last(latents.local.on(device_.host()), 1.0F, dtype_).on(device_),
                          layout.images.with_axis(3, channels), latents.group};
  Sharded out{Tensor::empty(own_box(video, latents.group).extent, stored, device_.host()), video,
              latents.group};
  const std::optional<ImagePart> part = ImagePart::of(latents.group, layout.images);
  const auto inverse = static_cast<float>(1 / config_.scaling_factor);
  for (std::int64_t frame = 0; part && frame < mine.local.shape(0); ++frame) {
    const Tensor image = image_(*part, ops::scaled(mine.local.rows(frame, 1), inverse));
    out.local.rows(frame, 1).copy_from(store(image));
  }
  return out;
}

DecodedVideo OpenSoraDecoder::pixels(const Sharded& latents, const DecodeLayout& layout) const {
  ops::FiniteCheck check(device_);
  const Sharded pixels = decode(latents, layout, DType::uint8, [&](const Tensor& image) {
    check.add(image);
    return ops::to_pixels(image);
  });
  return {pixels, check.finite()};
}

Sharded OpenSoraDecoder::video(const Sharded& latents, const DecodeLayout& layout) const {
  return decode(latents, layout, DType::float32,
                [](const Tensor& image) { return image.to(DType::float32); });
}

}  // namespace reelmesh
