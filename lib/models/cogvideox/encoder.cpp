#include "models/cogvideox/encoder.hpp"

#include <algorithm>
#include <cmath>

#include "base/trace.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t batch_frames = 8;
constexpr double norm_out_eps = 1e-6;  // the reference does not take the configured one here

// Frames after halving, as reelmesh::halved.
std::int64_t halved(std::int64_t frames) { return (frames + 1) / 2; }

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> encode_batches(std::int64_t frames) {
  std::vector<std::pair<std::int64_t, std::int64_t>> batches;
  const std::int64_t rest = frames % batch_frames;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(1, frames / batch_frames); ++i) {
    const std::int64_t first = batch_frames * i + (i == 0 ? 0 : rest);
    batches.emplace_back(first, std::min(frames, batch_frames * (i + 1) + rest) - first);
  }
  return batches;
}

std::int64_t encoded_frames(std::int64_t frames) {
  std::int64_t latent_frames = 0;
  for (const auto& [first, count] : encode_batches(frames)) latent_frames += halved(halved(count));
  return latent_frames;
}

CogVideoXEncoder::CogVideoXEncoder(const Checkpoint& weights, const CogVideoXVaeConfig& config,
                                   DType dtype)
    : config_(config), dtype_(dtype), device_(weights.device()) {
  const auto& widths = config.block_channels;
  std::int64_t channels = widths.front();
  conv_in_ = CausalConvolution(weights, "encoder.conv_in", config.in_channels, channels, dtype,
                               causal_count_++);
  // Each downsampling halves height and width; the first two (4 = 2²) also halve the frames.
  const auto halvings = static_cast<std::size_t>(std::log2(config.temporal_compression));
  for (std::size_t b = 0; b < widths.size(); ++b) {
    const std::string name = fmt::format("encoder.down_blocks.{}.", b);
    Down down;
    for (std::int64_t i = 0; i < config.layers_per_block; ++i) {
      down.residuals.push_back(
          load_residual(weights, fmt::format("{}resnets.{}", name, i), channels, widths[b]));
      channels = widths[b];
    }
    down.downsamples = b + 1 < widths.size();
    down.halves_frames = b < halvings;
    if (down.downsamples) {
      down.downsample = ops::Convolution(
          weights.load(name + "downsamplers.0.conv.weight", {channels, channels, 3, 3}, dtype),
          weights.load(name + "downsamplers.0.conv.bias", {channels}, dtype), weights.numerics(),
          {.stride = 2, .before = 0, .after = 1});
    }
    downs_.push_back(std::move(down));
  }
  for (int i = 0; i < 2; ++i) {
    mid_.push_back(
        load_residual(weights, fmt::format("encoder.mid_block.resnets.{}", i), channels, channels));
  }
  norm_out_ = load_affine(weights, "encoder.norm_out", channels, dtype);
  conv_out_ = CausalConvolution(weights, "encoder.conv_out", channels, 2 * config.latent_channels,
                                dtype, causal_count_++);
}

CogVideoXEncoder::Residual CogVideoXEncoder::load_residual(const Checkpoint& weights,
                                                           const std::string& name, std::int64_t in,
                                                           std::int64_t out) {
  return {load_affine(weights, name + ".norm1", in, dtype_),
          load_affine(weights, name + ".norm2", out, dtype_),
          CausalResidual(weights, name, in, out, dtype_, causal_count_)};
}

Tensor CogVideoXEncoder::apply(const Residual& residual, const ImagePart& image, const Tensor& x,
                               EarlierFrames& earlier) const {
  const auto norm = [&](const Affine& affine) {
    return [&](const Tensor& in) {
      return image.group_norm(in, affine, config_.groups, config_.norm_eps, true);
    };
  };
  return residual.block(image, x, earlier, norm(residual.norm1), norm(residual.norm2));
}

namespace {

// uint8 → x/255·2 − 1, computed in float32 and rounded to `dtype`, as in the reference.
Tensor scaled_pixels(const Tensor& pixels, DType dtype) {
  if (pixels.device().only_shapes) return Tensor::empty(pixels.shape(), dtype, pixels.device());
  Tensor table = Tensor::empty({256}, DType::float32);
  for (int i = 0; i < 256; ++i) {
    table.data<float>()[i] = 2.0F * (static_cast<float>(i) / 255.0F) - 1.0F;
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

// Means of pairs of frames; of an odd number, frame 0 is kept and pairs begin at frame 1.
Tensor halved(const Tensor& x) {
  Shape shape = x.shape();
  const std::int64_t odd = shape[0] % 2;
  shape[0] = halved(shape[0]);
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  if (odd == 1) out.rows(0, 1).copy_from(x.rows(0, 1));
  for (std::int64_t t = odd; t < shape[0]; ++t) {
    Tensor mean = out.rows(t, 1);
    ops::average(x.rows(2 * t - odd, 1), x.rows(2 * t - odd + 1, 1), mean);
  }
  return out;
}

// Calls f(element, mean, deviation, rounded) for the elements of latents [frame, channel, row,
// column]. moments: [frame, row, column, 2·channel]. Each operation is rounded to their type, by
// `rounded`, as in diffusers' DiagonalGaussianDistribution.
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
          f(element, static_cast<float>(moment[0]), rounded(std::exp(rounded(0.5F * log_variance))),
            rounded);
        }
      }
    }
  });
}

// Replaces noise [frame, channel, row, column] by a sample of the posterior times `scale`.
void sample_posterior(const Tensor& moments, double scale, Tensor noise) {
  if (noise.device().only_shapes) return;
  const auto factor = static_cast<float>(scale);
  for_each_moment(moments, noise.shape(),
                  [&](std::int64_t i, float mean, float deviation, const auto& rounded) {
                    float& value = noise.data<float>()[i];
                    value = rounded(factor * rounded(mean + rounded(deviation * value)));
                  });
}

}  // namespace

void CogVideoXEncoder::encode(const Sharded& pixels, const Layout& latents,
                              const Consume& consume) const {
  std::optional<ImagePart> part = ImagePart::of(pixels.group, latents);
  if (!part) return;
  std::vector<ImagePart> images{*part};  // from the latents' resolution to that of the pixels
  std::int64_t reduction = 1;            // of rows and of columns
  for (const Down& down : downs_) {
    if (!down.downsamples) continue;
    images.push_back(images.back().enlarged());
    reduction *= 2;
  }
  const std::int64_t frames = pixels.layout.global()[0];
  const Layout expected = latents.without_axis(0)
                              .scaled(0, reduction)
                              .scaled(1, reduction)
                              .with_axis(0, frames)
                              .with_axis(3, 3);
  expect(own_box(expected, pixels.group) == pixels.box() &&
             latents.global()[0] == encoded_frames(frames),
         "encoding of pixels {} to latents {}", to_string(pixels.box()),
         to_string(own_box(latents, pixels.group)));
  EarlierFrames earlier(causal_count_);
  std::int64_t done = 0;
  for (const auto& [first, count] : encode_batches(frames)) {
    const trace::Scope scope(trace::spans::encode_batch);
    earlier.last_batch = first + count == frames;
    auto image = images.rbegin();
    Tensor x = conv_in_(*image, scaled_pixels(pixels.local.rows(first, count), dtype_).on(device_),
                        earlier);
    for (const Down& down : downs_) {
      for (const Residual& residual : down.residuals) x = apply(residual, *image, x, earlier);
      if (!down.downsamples) continue;
      // The reference averages frames before this convolution, too.
      if (down.halves_frames) x = halved(x);
      x = image->convolve(down.downsample, x);
      ++image;
    }
    for (const Residual& residual : mid_) x = apply(residual, *image, x, earlier);
    x = image->group_norm(x, norm_out_, config_.groups, norm_out_eps, true);
    consume(done, conv_out_(*image, x, earlier));
    done += x.shape(0);
  }
}

Tensor CogVideoXEncoder::latents_box(const Sharded& pixels, const Layout& latents) const {
  const Box& box = own_box(latents, pixels.group);
  return Tensor::empty({box.extent[0], config_.latent_channels, box.extent[1], box.extent[2]},
                       DType::float32, device_.host());
}

Encoder::Posterior CogVideoXEncoder::posterior(const Sharded& pixels, const Layout& latents) const {
  Posterior result{latents_box(pixels, latents), latents_box(pixels, latents)};
  encode(pixels, latents, [&](std::int64_t first, const Tensor& moments) {
    Tensor mean = result.mean.rows(first, moments.shape(0));
    Tensor deviation = result.deviation.rows(first, moments.shape(0));
    if (mean.device().only_shapes) return;
    for_each_moment(moments.on(device_.host()), mean.shape(),
                    [&](std::int64_t i, float mu, float sigma, const auto&) {
                      mean.data<float>()[i] = mu;
                      deviation.data<float>()[i] = sigma;
                    });
  });
  return result;
}

Tensor CogVideoXEncoder::sample(const Sharded& pixels, const Layout& latents, double scale,
                                const DrawNoise& noise) const {
  Tensor result = latents_box(pixels, latents);
  if (!result.empty() && !device_.only_shapes) noise(result.span<float>());
  encode(pixels, latents, [&](std::int64_t first, const Tensor& moments) {
    sample_posterior(moments.on(device_.host()), scale, result.rows(first, moments.shape(0)));
  });
  return result;
}

}  // namespace reelmesh
