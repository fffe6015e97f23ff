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
    : GaussianEncoder(weights.device(), dtype, config.latent_channels,
                      config.block_channels.size() - 1),
      config_(config) {
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

}  // namespace

void CogVideoXEncoder::encode_part(std::span<const ImagePart> images, const Tensor& pixels,
                                   const Consume& consume) const {
  const std::int64_t frames = pixels.shape(0);
  EarlierFrames earlier(causal_count_);
  std::int64_t done = 0;
  for (const auto& [first, count] : encode_batches(frames)) {
    const trace::Scope scope(trace::spans::encode_batch);
    earlier.last_batch = first + count == frames;
    auto image = images.begin();
    Tensor x =
        conv_in_(*image, scaled_pixels(pixels.rows(first, count), dtype_).on(device_), earlier);
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

}  // namespace reelmesh
