#include "models/autoencoder/image_decoder.hpp"

#include "base/trace.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {

ImageDecoder::ImageDecoder(const Checkpoint& weights, const ImageAutoencoderConfig& config,
                           DType dtype)
    : kind_{.groups = config.groups} {
  const auto& widths = config.block_channels;
  const std::string& root = config.prefix;
  std::int64_t channels = widths.back();
  if (config.post_quant_conv) {
    post_quant_ = load_pointwise(weights, root + "post_quant_conv", config.latent_channels,
                                 config.latent_channels, 2, dtype);
  }
  const std::string decoder = root + "decoder.";
  conv_in_ =
      load_convolution(weights, decoder + "conv_in", config.latent_channels, channels, 2, dtype);
  middle_ = MiddleBlock(weights, decoder + "mid_block", channels, kind_, dtype);
  for (std::size_t b = 0; b < widths.size(); ++b) {
    const std::string name = fmt::format("{}up_blocks.{}.", decoder, b);
    const std::int64_t out = widths[widths.size() - 1 - b];
    Up up;
    up.residuals = load_residuals(weights, name + "resnets", config.layers_per_block + 1, channels,
                                  out, kind_, dtype);
    channels = out;
    up.upsamples = b + 1 < widths.size();
    if (up.upsamples) {
      up.upsample =
          load_convolution(weights, name + "upsamplers.0.conv", channels, channels, 2, dtype);
    }
    ups_.push_back(std::move(up));
  }
  norm_out_ = load_affine(weights, decoder + "conv_norm_out", channels, dtype);
  conv_out_ =
      load_convolution(weights, decoder + "conv_out", channels, config.out_channels, 2, dtype);
}

Tensor ImageDecoder::operator()(const ImagePart& part, const Tensor& latents) const {
  const trace::Scope scope(trace::spans::decode_frame);
  ImagePart image = part;
  Tensor x = post_quant_.out_features() > 0 ? post_quant_(latents) : latents;
  x = middle_(image, image.convolve(conv_in_, x));
  for (const Up& up : ups_) {
    for (const ResidualBlock& residual : up.residuals) x = residual(image, x);
    if (!up.upsamples) continue;
    x = image.convolve(up.upsample, x, 2);
    image = image.enlarged();
  }
  return image.convolve(conv_out_, image.group_norm(x, norm_out_, kind_.groups, kind_.eps, true));
}

}  // namespace reelmesh
