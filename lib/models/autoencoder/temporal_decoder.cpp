#include "models/autoencoder/temporal_decoder.hpp"

#include "base/trace.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {

TemporalDecoder::TemporalDecoder(const Checkpoint& weights, const TemporalAutoencoderConfig& config,
                                 DType dtype)
    : kind_(ResidualKind::temporal(config.groups)) {
  const std::string decoder = config.prefix + "decoder.";
  const auto residuals = [&](const std::string& list, std::int64_t in, std::int64_t out) {
    return load_residuals(weights, decoder + list, config.residuals, in, out, kind_, dtype);
  };
  const std::size_t levels = config.multipliers.size();
  std::int64_t channels = config.level_channels(levels - 1);
  post_quant_ = load_pointwise(weights, config.prefix + "post_quant_conv.conv", config.channels,
                               config.channels, 3, dtype);
  conv_in_ = load_convolution(weights, decoder + "conv1.conv", config.channels, channels, 3, dtype);
  first_ = residuals("res_blocks", channels, channels);
  for (std::size_t i = levels; i-- > 0;) {
    const std::int64_t out = config.level_channels(i);
    Level level{residuals(fmt::format("block_res_blocks.{}", i), channels, out), {}, false};
    channels = out;
    level.doubles = i > 0 && config.doubles_frames[i - 1];
    if (level.doubles) {
      level.doubling =
          load_convolution(weights, fmt::format("{}conv_blocks.{}.conv", decoder, i - 1), channels,
                           2 * channels, 3, dtype);
    }
    levels_.push_back(std::move(level));
  }
  norm_out_ = load_affine(weights, decoder + "norm1", channels, dtype);
  conv_out_ =
      load_convolution(weights, decoder + "conv_out.conv", channels, config.channels, 3, dtype);
}

Tensor TemporalDecoder::operator()(const ImagePart& part, const Tensor& latents,
                                   std::int64_t frames) const {
  const trace::Scope scope(trace::spans::decode_batch);
  Tensor x = part.convolve(conv_in_, post_quant_(latents));
  for (const ResidualBlock& residual : first_) x = residual(part, x);
  for (const Level& level : levels_) {
    for (const ResidualBlock& residual : level.residuals) x = residual(part, x);
    if (level.doubles) x = ops::channels_to_frames(part.convolve(level.doubling, x));
  }
  x = part.convolve(conv_out_, part.group_norm(x, norm_out_, kind_.groups, kind_.eps, true));
  expect(frames <= x.shape(0), "{} frames requested, {} decoded", frames, x.shape(0));
  return x.rows(x.shape(0) - frames, frames);
}

}  // namespace reelmesh
