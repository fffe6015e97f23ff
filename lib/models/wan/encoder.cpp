#include "models/wan/encoder.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "models/common/layers.hpp"
#include "models/common/odd_frames.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {

WanEncoder::WanEncoder(const Checkpoint& weights, const WanVaeConfig& config, DType dtype)
    : GaussianEncoder(weights.device(), dtype, config.latent_channels,
                      config.multipliers.size() - 1 + (config.patch > 1 ? 1U : 0U)),
      config_(config) {
  std::int64_t channels = config.base_channels;
  std::int64_t place = 0;  // in the list of all blocks, which models without shortcuts have
  conv_in_ = CausalConvolution(weights, "encoder.conv_in", config.patch_channels(), channels, dtype,
                               causal_count_++, wan_causal);
  for (std::size_t level = 0; level < config.multipliers.size(); ++level) {
    const auto next_name = [&](const std::string& in_block) {
      return config.shortcuts ? fmt::format("encoder.down_blocks.{}.{}", level, in_block)
                              : fmt::format("encoder.down_blocks.{}", place++);
    };
    Down& down = downs_.emplace_back();
    for (std::int64_t i = 0; i < config.residuals; ++i) {
      down.residuals.emplace_back(weights, next_name(fmt::format("resnets.{}", i)), channels,
                                  config.channels(level), dtype, causal_count_);
      channels = config.channels(level);
    }
    down.reduces = level + 1 < config.multipliers.size();
    down.shortcut = {.frames = 1, .side = down.reduces ? 2 : 1};
    if (!down.reduces) continue;
    const std::string name = next_name("downsampler");
    down.reducing = ops::Convolution(
        weights.load(name + ".resample.1.weight", {channels, channels, 3, 3}, dtype),
        weights.load(name + ".resample.1.bias", {channels}, dtype), weights.numerics(),
        {.stride = 2, .before = 0, .after = 1});
    down.halves_frames = config.halves_frames[level];
    if (!down.halves_frames) continue;
    down.shortcut.frames = 2;
    down.halving = CausalConvolution(
        {weights.load(name + ".time_conv.weight", {channels, channels, 3, 1, 1}, dtype),
         weights.load(name + ".time_conv.bias", {channels}, dtype), weights.numerics(),
         wan_time_window},
        BeforeFirst::zeros, causal_count_++);
  }
  middle_ = WanMiddle(weights, "encoder.mid_block", channels, dtype, causal_count_);
  const std::int64_t moments = 2 * config.latent_channels;
  norm_out_ = load_wan_norm(weights, "encoder.norm_out", channels, dtype);
  conv_out_ = CausalConvolution(weights, "encoder.conv_out", channels, moments, dtype,
                                causal_count_++, wan_causal);
  quant_ = load_pointwise(weights, "quant_conv", moments, moments, 3, dtype);
  Normalization normalization;
  for (const double mean : config.latents_mean) {
    normalization.shift.push_back(static_cast<float>(mean));
  }
  for (const double deviation : config.latents_std) {
    normalization.scale.push_back(static_cast<float>(deviation));
  }
  normalize(std::move(normalization));
}

// Advances `image` if the block makes images smaller.
Tensor WanEncoder::run_down(const Down& down, std::span<const ImagePart>::iterator& image, Tensor x,
                            bool first, EarlierFrames& earlier) const {
  const Tensor in = config_.shortcuts ? x : Tensor();
  for (const WanResidual& residual : down.residuals) x = residual(*image, x, earlier);
  if (down.reduces) {
    x = image->convolve(down.reducing, x);
    ++image;
  }
  if (down.halves_frames && first) {  // frame 0 stays as it is
    down.halving.skip(*image, x, earlier);
  } else if (down.halves_frames) {
    x = odd_frames(down.halving(*image, x, earlier));
  }
  if (config_.shortcuts) ops::add_folded(x, in, down.shortcut.in_chunk(first));
  return x;
}

void WanEncoder::encode_part(std::span<const ImagePart> images, const Tensor& pixels,
                             const Consume& consume) const {
  constexpr std::int64_t chunk = WanVaeConfig::frames_per_latent;
  const std::int64_t latents = latent_frames(pixels.shape(0));
  EarlierFrames earlier(causal_count_);
  for (std::int64_t latent = 0; latent < latents; ++latent) {
    const trace::Scope scope(trace::spans::encode_batch);
    earlier.last_batch = latent + 1 == latents;
    const std::int64_t first = latent == 0 ? 0 : 1 + (latent - 1) * chunk;
    auto image = images.end() - std::ssize(downs_);  // of the images of patches
    Tensor x = scaled_pixels(pixels.rows(first, latent == 0 ? 1 : chunk), dtype_).on(device_);
    x = conv_in_(*image, wan_patches(x, config_.patch), earlier);
    for (const Down& down : downs_) x = run_down(down, image, std::move(x), latent == 0, earlier);
    x = middle_(*image, x, earlier);
    consume(latent, quant_(conv_out_(*image, wan_norm_silu(x, norm_out_), earlier)));
  }
}

}  // namespace reelmesh
