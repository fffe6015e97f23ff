#include "models/common/decoder.hpp"

#include "ops/pointwise.hpp"

namespace reelmesh {

DecodedVideo collect_pixels(const Sharded& latents, const DecodeLayout& layout,
                            std::int64_t pixels_per_latent, Device device,
                            const std::function<void(const ConsumeFrames&)>& decode) {
  const Layout cut =
      layout.images.scaled(1, pixels_per_latent).scaled(2, pixels_per_latent).with_axis(3, 3);
  Sharded video{Tensor::empty(own_box(cut, latents.group).extent, DType::uint8, device.host()), cut,
                latents.group};
  ops::FiniteCheck check(device);
  decode([&](std::int64_t first, const Tensor& frames) {
    check.add(frames);
    video.local.rows(first, frames.shape(0)).copy_from(ops::to_pixels(frames));
  });
  return {video, check.finite()};
}

}  // namespace reelmesh
