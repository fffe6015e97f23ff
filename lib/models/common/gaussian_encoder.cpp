#include "models/common/gaussian_encoder.hpp"

#include <algorithm>
#include <cmath>

namespace reelmesh {
namespace {

// Calls f(element, channel, mean, deviation, rounded) for the elements of latents [frame, channel,
// row, column]. moments: [frame, row, column, 2·channel]. Each operation is rounded to their type,
// by `rounded`.
template <class F>
void for_each_moment(const Tensor& moments, const Shape& latents, F&& f) {
  const std::int64_t frames = latents[0], channels = latents[1], pixels = latents[2] * latents[3];
  visit_float(moments.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto rounded = [](float x) { return static_cast<float>(T(x)); };
    std::int64_t element = 0;
    for (std::int64_t t = 0; t < frames; ++t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const T* moment = moments.data<T>() + t * pixels * 2 * channels + c;
        for (std::int64_t i = 0; i < pixels; ++i, ++element, moment += 2 * channels) {
          const float log_variance =
              std::clamp(static_cast<float>(moment[channels]), -30.0F, 20.0F);
          f(element, static_cast<std::size_t>(c), static_cast<float>(moment[0]),
            rounded(std::exp(rounded(0.5F * log_variance))), rounded);
        }
      }
    }
  });
}

}  // namespace

Tensor scaled_pixels(const Tensor& pixels, DType dtype) {
  if (pixels.dtype() == DType::float32) return pixels.to(dtype);
  if (pixels.device().only_shapes) return Tensor::empty(pixels.shape(), dtype, pixels.device());
  Tensor table = Tensor::empty({256}, DType::float32);
  for (int i = 0; i < 256; ++i) {
    table.data<float>()[i] = scaled_pixel(static_cast<float>(i));
  }
  table = table.to(dtype);
  Tensor values = Tensor::empty(pixels.shape(), dtype);
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    const T* of = table.data<T>();
    std::ranges::transform(pixels.span<std::uint8_t>(), values.data<T>(),
                           [of](std::uint8_t pixel) { return of[pixel]; });
  });
  return values;
}

void GaussianEncoder::encode(const Sharded& pixels, const Layout& latents,
                             const Consume& consume) const {
  std::optional<ImagePart> part = ImagePart::of(pixels.group, latents);
  if (!part) return;
  std::vector<ImagePart> images{*part};
  for (std::size_t i = 0; i < halvings_; ++i) images.push_back(images.back().enlarged());
  std::ranges::reverse(images);
  const std::int64_t frames = pixels.layout.global()[0], reduction = std::int64_t{1} << halvings_;
  const Layout expected =
      frames_of(latents, frames).scaled(1, reduction).scaled(2, reduction).with_axis(3, 3);
  expect(own_box(expected, pixels.group) == pixels.box() &&
             latents.global()[0] == latent_frames(frames),
         "encoding of pixels {} to latents {}", to_string(pixels.box()),
         to_string(own_box(latents, pixels.group)));
  encode_part(images, pixels.local, consume);
}

Tensor GaussianEncoder::latents_box(const Sharded& pixels, const Layout& latents) const {
  const Box& box = own_box(latents, pixels.group);
  const std::int64_t channels = std::ssize(normalization_.scale);
  return Tensor::empty({box.extent[0], channels, box.extent[1], box.extent[2]}, DType::float32,
                       device_.host());
}

Encoder::Posterior GaussianEncoder::posterior(const Sharded& pixels, const Layout& latents) const {
  Posterior result{latents_box(pixels, latents), latents_box(pixels, latents)};
  const Normalization& norm = normalization_;
  encode(pixels, latents, [&](std::int64_t first, const Tensor& moments) {
    Tensor mean = result.mean.rows(first, moments.shape(0));
    Tensor deviation = result.deviation.rows(first, moments.shape(0));
    const Tensor on_host = moments.on(device_.host());
    if (on_host.device().only_shapes) return;
    for_each_moment(on_host, mean.shape(),
                    [&](std::int64_t i, std::size_t c, float mu, float sigma, const auto&) {
                      mean.data<float>()[i] = (mu - norm.shift[c]) / norm.scale[c];
                      deviation.data<float>()[i] = sigma / norm.scale[c];
                    });
  });
  return result;
}

Tensor GaussianEncoder::sample(const Sharded& pixels, const Layout& latents, double scale,
                               const DrawNoise& noise) const {
  Tensor result = latents_box(pixels, latents);
  if (!result.empty() && !device_.only_shapes) {
    std::ranges::fill(result.span<float>(), 0.0F);
    if (noise) noise(result.span<float>());
  }
  const auto factor = static_cast<float>(scale);
  const Normalization& norm = normalization_;
  encode(pixels, latents, [&](std::int64_t first, const Tensor& moments) {
    Tensor values = result.rows(first, moments.shape(0));
    const Tensor on_host = moments.on(device_.host());
    if (on_host.device().only_shapes) return;
    for_each_moment(on_host, values.shape(),
                    [&](std::int64_t i, std::size_t c, float mu, float sigma, const auto& rounded) {
                      float& value = values.data<float>()[i];
                      const float z = rounded(mu + rounded(sigma * value));
                      value = rounded(rounded(z - norm.shift[c]) / norm.scale[c]);
                      value = rounded(factor * value);
                    });
  });
  return result;
}

}  // namespace reelmesh
