#include "models/autoencoder/temporal_encoder.hpp"

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

namespace {

// Frames 1, 3, 5, … of a causal convolution are all of one with stride 2 and one frame of padding.
// Half of its work is wasted, in two of some fifty convolutions, on images of latents' size.
Tensor odd_frames(const Tensor& x) {
  Shape shape = x.shape();
  expect(shape[0] % 2 == 0, "halving of {} frames", shape[0]);
  shape[0] /= 2;
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  for (std::int64_t t = 0; t < shape[0]; ++t) out.rows(t, 1).copy_from(x.rows(2 * t + 1, 1));
  return out;
}

}  // namespace

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
