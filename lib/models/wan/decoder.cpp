#include "models/wan/decoder.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "models/common/channels_last.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {

WanDecoder::WanDecoder(const Checkpoint& weights, const WanVaeConfig& config, DType dtype)
    : config_(config), dtype_(dtype), device_(weights.device()) {
  const std::size_t levels = config.multipliers.size();
  std::int64_t channels = config.decoder_channels(levels - 1);
  post_quant_ = load_pointwise(weights, "post_quant_conv", config.latent_channels,
                               config.latent_channels, 3, dtype);
  conv_in_ = CausalConvolution(weights, "decoder.conv_in", config.latent_channels, channels, dtype,
                               causal_count_++, wan_causal);
  middle_ = WanMiddle(weights, "decoder.mid_block", channels, dtype, causal_count_);
  for (std::size_t b = 0; b < levels; ++b) {
    const std::string name = fmt::format("decoder.up_blocks.{}.", b);
    const std::size_t level = levels - 1 - b;
    Up& up = ups_.emplace_back();
    for (std::int64_t i = 0; i <= config.residuals; ++i) {
      up.residuals.emplace_back(weights, fmt::format("{}resnets.{}", name, i), channels,
                                config.decoder_channels(level), dtype, causal_count_);
      channels = config.decoder_channels(level);
    }
    up.enlarges = level > 0;
    if (!up.enlarges) continue;
    const std::string layer = name + (config.shortcuts ? "upsampler." : "upsamplers.0.");
    up.doubles_frames = config.halves_frames[level - 1];
    if (up.doubles_frames) {
      // Of the two frames that it makes of one, the file has all channels of the first, then those
      // of the second; ops::channels_to_frames takes both of a channel, then those of the next.
      const std::string doubling = layer + "time_conv";
      const auto reordered = [&](const std::string& part, const Shape& shape) {
        return channel_first(weights.load(doubling + part, shape, dtype), channels);
      };
      up.doubling = CausalConvolution(
          {reordered(".weight", {2 * channels, channels, 3, 1, 1}),
           reordered(".bias", {2 * channels}), weights.numerics(), wan_time_window},
          BeforeFirst::zeros, causal_count_++);
    }
    const std::int64_t enlarged = config.shortcuts ? channels : channels / 2;
    up.enlarging = ops::Convolution(
        weights.load(layer + "resample.1.weight", {enlarged, channels, 3, 3}, dtype),
        weights.load(layer + "resample.1.bias", {enlarged}, dtype), weights.numerics());
    channels = enlarged;
  }
  norm_out_ = load_wan_norm(weights, "decoder.norm_out", channels, dtype);
  conv_out_ = CausalConvolution(weights, "decoder.conv_out", channels, config.patch_channels(),
                                dtype, causal_count_++, wan_causal);
}

// Latents [frame, channel, row, column] → [frame, row, column, channel] of dtype_ as the layers
// take them: x / (1/std) + mean in float32, as in the pipeline.
Tensor WanDecoder::unscaled(const Tensor& latents) const {
  Tensor x = channels_last(latents.on(device_.host()), 1.0F, DType::float32);
  if (!device_.only_shapes && !x.empty()) {
    const auto channels = static_cast<std::size_t>(config_.latent_channels);
    const std::span<float> values = x.span<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t c = i % channels;
      const float inverse = 1.0F / static_cast<float>(config_.latents_std[c]);
      values[i] = values[i] / inverse + static_cast<float>(config_.latents_mean[c]);
    }
  }
  return x.to(dtype_).on(device_);
}

// Enlarges `image` with the block's images.
Tensor WanDecoder::run_up(const Up& up, ImagePart& image, Tensor x, bool first,
                          EarlierFrames& earlier) const {
  const Tensor in = config_.shortcuts ? x : Tensor();
  for (const WanResidual& residual : up.residuals) x = residual(image, x, earlier);
  if (!up.enlarges) return x;
  // Frame 0 of the clip stays one frame, which the convolution over frames does not see.
  if (up.doubles_frames && !first) {
    x = ops::channels_to_frames(up.doubling(image, x, earlier));
  }
  x = image.convolve(up.enlarging, x, 2);
  image = image.enlarged();
  if (config_.shortcuts) {
    const ops::Folding shortcut{.frames = up.doubles_frames ? 2 : 1, .side = 2};
    ops::add_unfolded(x, in, shortcut.in_chunk(first));
  }
  return x;
}

void WanDecoder::decode(const Sharded& latents, const ConsumeFrames& consume,
                        std::int64_t chunk) const {
  const std::optional<ImagePart> part =
      ImagePart::of(latents.group, latents.layout.without_axis(1));
  if (!part) return;
  const std::int64_t all = latents.layout.global()[0];
  expect(latents.local.shape(0) == all, "decoding needs all frames, not {}",
         to_string(latents.box()));
  EarlierFrames earlier(causal_count_);
  std::int64_t done = 0;
  for (std::int64_t first = 0, count = 1; first < all; first += count, count = chunk) {
    const trace::Scope scope(trace::spans::decode_batch);
    count = std::min(count, all - first);
    earlier.last_batch = first + count == all;
    ImagePart image = *part;
    Tensor x = conv_in_(image, post_quant_(unscaled(latents.local.rows(first, count))), earlier);
    x = middle_(image, x, earlier);
    for (const Up& up : ups_) x = run_up(up, image, std::move(x), first == 0, earlier);
    x = wan_unpatched(conv_out_(image, wan_norm_silu(x, norm_out_), earlier), config_.patch);
    consume(done, x);
    done += x.shape(0);
  }
}

DecodedVideo WanDecoder::pixels(const Sharded& latents, const DecodeLayout& layout) const {
  return collect_pixels(latents, layout, config_.pixels_per_latent(), device_,
                        [&](const ConsumeFrames& consume) { decode(latents, consume); });
}

}  // namespace reelmesh
