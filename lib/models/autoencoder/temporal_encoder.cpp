#include "models/autoencoder/temporal_encoder.hpp"

#include "models/common/odd_frames.hpp"

namespace reelmesh {

TemporalEncoder::TemporalEncoder(const Checkpoint& weights, const TemporalAutoencoderConfig& config,
                                 DType dtype)
    : kind_(ResidualKind::temporal(config.groups)) {
  const std::string encoder = config.prefix + "encoder.";
  const auto residuals = [&](const std::string& list, std::int64_t in, std::int64_t out) {
    return load_residuals(weights, encoder + list, config.residuals, in, out, kind_, dtype);
  };
  const std::size_t levels = config.multipliers.size();
  const std::int64_t moments = 2 * config.channels;
  std::int64_t channels = config.filters;
  conv_in_ = load_convolution(weights, encoder + "conv_in.conv", config.channels, channels, 3,
                              dtype, false);
  for (std::size_t i = 0; i < levels; ++i) {
    const std::int64_t out = config.level_channels(i);
    Level level{residuals(fmt::format("block_res_blocks.{}", i), channels, out), {}, false};
    channels = out;
    level.halves = i + 1 < levels && config.doubles_frames[i];
    if (level.halves) {
      level.halving = load_convolution(weights, fmt::format("{}conv_blocks.{}.conv", encoder, i),
                                       channels, channels, 3, dtype);
    }
    levels_.push_back(std::move(level));
  }
  last_ = residuals("res_blocks", channels, channels);
  norm_out_ = load_affine(weights, encoder + "norm1", channels, dtype);
  conv_out_ = load_pointwise(weights, encoder + "conv2.conv", channels, moments, 3, dtype);
  quant_ = load_pointwise(weights, config.prefix + "quant_conv.conv", moments, moments, 3, dtype);
}

Tensor TemporalEncoder::operator()(const ImagePart& part, const Tensor& x) const {
  Tensor h = part.convolve(conv_in_, x);
  for (const Level& level : levels_) {
    for (const ResidualBlock& residual : level.residuals) h = residual(part, h);
    if (level.halves) h = odd_frames(part.convolve(level.halving, h));
  }
  for (const ResidualBlock& residual : last_) h = residual(part, h);
  return quant_(conv_out_(part.group_norm(h, norm_out_, kind_.groups, kind_.eps, true)));
}

}  // namespace reelmesh
