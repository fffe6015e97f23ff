#include "models/autoencoder/image_encoder.hpp"

namespace reelmesh {

ImageEncoder::ImageEncoder(const Checkpoint& weights, const ImageAutoencoderConfig& config,
                           DType dtype)
    : kind_{.groups = config.groups} {
  const auto& widths = config.block_channels;
  const std::int64_t moments = 2 * config.latent_channels;
  std::int64_t channels = widths.front();
  const std::string encoder = config.prefix + "encoder.";
  conv_in_ = load_convolution(weights, encoder + "conv_in", config.in_channels, channels, 2, dtype);
  for (std::size_t b = 0; b < widths.size(); ++b) {
    const std::string name = fmt::format("{}down_blocks.{}.", encoder, b);
    Down down;
    down.residuals = load_residuals(weights, name + "resnets", config.layers_per_block, channels,
                                    widths[b], kind_, dtype);
    channels = widths[b];
    down.downsamples = b + 1 < widths.size();
    if (down.downsamples) {
      down.downsample = load_convolution(weights, name + "downsamplers.0.conv", channels, channels,
                                         2, dtype, true, {.stride = 2, .before = 0, .after = 1});
    }
    downs_.push_back(std::move(down));
  }
  middle_ = MiddleBlock(weights, encoder + "mid_block", channels, kind_, dtype);
  norm_out_ = load_affine(weights, encoder + "conv_norm_out", channels, dtype);
  conv_out_ = load_convolution(weights, encoder + "conv_out", channels, moments, 2, dtype);
  if (config.quant_conv) {
    quant_ = load_pointwise(weights, config.prefix + "quant_conv", moments, moments, 2, dtype);
  }
}

Tensor ImageEncoder::operator()(std::span<const ImagePart> images, const Tensor& pixels) const {
  auto image = images.begin();
  Tensor x = image->convolve(conv_in_, pixels);
  for (const Down& down : downs_) {
    for (const ResidualBlock& residual : down.residuals) x = residual(*image, x);
    if (!down.downsamples) continue;
    x = image->convolve(down.downsample, x);
    ++image;
  }
  x = middle_(*image, x);
  x = image->convolve(conv_out_, image->group_norm(x, norm_out_, kind_.groups, kind_.eps, true));
  return quant_.out_features() > 0 ? quant_(x) : x;
}

}  // namespace reelmesh
