#include "models/autoencoder/encoder.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "layout/relayout.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {

OpenSoraEncoder::OpenSoraEncoder(const Checkpoint& weights, const OpenSoraVaeConfig& config,
                                 DType dtype)
    : GaussianEncoder(weights.device(), dtype, config.image.latent_channels,
                      config.image.block_channels.size() - 1),
      config_(config),
      image_(weights, config.image, dtype) {
  if (!config.temporal) return;
  const Shape shape{1, config.temporal->channels, 1, 1, 1};
  normalize({.shift = load_channel_values(weights, "shift", shape, dtype),
             .scale = load_channel_values(weights, "scale", shape, dtype)});
  temporal_.emplace(weights, *config.temporal, dtype);
}

Layout OpenSoraEncoder::frames_of(const Layout& latents, std::int64_t frames) const {
  const std::int64_t of_group = temporal_ ? config_.temporal->micro_latents() : 1;
  const std::int64_t kept = latents.global()[0];
  expect(kept == latent_frames(frames), "{} latent frames of {} frames", kept, frames);
  const auto first_frame = [&](std::int64_t latent) {
    if (latent == kept) return frames;
    expect(latent % of_group == 0, "latents {} are cut within a group of {}", to_string(latents),
           of_group);
    return latent / of_group * group_frames();
  };
  std::vector<Box> boxes;
  for (int rank = 0; rank < latents.ranks(); ++rank) {
    Box box = latents.box(rank);
    if (!box.empty()) {
      const std::int64_t end = first_frame(box.end(0));
      box.offset[0] = first_frame(box.offset[0]);
      box.extent[0] = end - box.offset[0];
    }
    boxes.push_back(std::move(box));
  }
  return {{frames, latents.global()[1], latents.global()[2]}, std::move(boxes)};
}

Tensor OpenSoraEncoder::image_moments(std::span<const ImagePart> images, const Tensor& pixels,
                                      std::int64_t frame) const {
  return image_(images, scaled_pixels(pixels.rows(frame, 1), dtype_).on(device_));
}

Tensor OpenSoraEncoder::group_moments(std::span<const ImagePart> images, const Tensor& pixels,
                                      std::int64_t first, std::int64_t count) const {
  const TemporalAutoencoderConfig& temporal = *config_.temporal;
  const std::int64_t frames = temporal.compression() * temporal.latents(count);
  Tensor means;  // zeros, then those of the images
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor moments = image_moments(images, pixels, first + i);
    const Shape shape{1, moments.shape(1), moments.shape(2), temporal.channels};
    if (i == 0) {
      means = Tensor::zeros({frames, shape[1], shape[2], shape[3]}, dtype_, device_);
    }
    Tensor mean = means.rows(frames - count + i, 1);
    copy_box(whole_box(shape), moments, whole_box(moments.shape()), mean, whole_box(shape));
  }
  const auto factor = static_cast<float>(OpenSoraVaeConfig::scaling_factor);
  return (*temporal_)(images.back(), ops::scaled(means, factor));
}

void OpenSoraEncoder::encode_part(std::span<const ImagePart> images, const Tensor& pixels,
                                  const Consume& consume) const {
  const std::int64_t frames = pixels.shape(0), group = group_frames();
  for (std::int64_t first = 0, done = 0; first < frames; first += group) {
    const trace::Scope scope(trace::spans::encode_batch);
    const Tensor moments =
        temporal_ ? group_moments(images, pixels, first, std::min(group, frames - first))
                  : image_moments(images, pixels, first);
    consume(done, moments);
    done += moments.shape(0);
  }
}

}  // namespace reelmesh
