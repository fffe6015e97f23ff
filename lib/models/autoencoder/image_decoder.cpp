#include "models/autoencoder/image_decoder.hpp"

#include "base/trace.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {
namespace {

constexpr double eps = 1e-6;  // of all group norms; not in config.json

}  // namespace

ImageDecoder::ImageDecoder(const Checkpoint& weights, const ImageAutoencoderConfig& config,
                           DType dtype)
    : config_(config), numerics_(weights.numerics()) {
  const auto& widths = config.block_channels;
  const std::string& root = config.prefix;
  const ResidualKind kind{.groups = config.groups, .eps = eps};
  std::int64_t channels = widths.back();
  if (config.post_quant_conv) {
    post_quant_ = load_pointwise(weights, root + "post_quant_conv", config.latent_channels,
                                 config.latent_channels, 2, dtype);
  }
  const std::string decoder = root + "decoder.", mid = decoder + "mid_block.";
  conv_in_ =
      load_convolution(weights, decoder + "conv_in", config.latent_channels, channels, 2, dtype);
  for (int i = 0; i < 2; ++i) {
    mid_.emplace_back(weights, fmt::format("{}resnets.{}", mid, i), channels, channels, kind,
                      dtype);
  }
  const std::string attention = mid + "attentions.0.";
  attention_norm_ = load_affine(weights, attention + "group_norm", channels, dtype);
  query_ = load_linear(weights, attention + "to_q", channels, channels, dtype);
  key_value_ =
      load_linears(weights, {attention + "to_k", attention + "to_v"}, channels, channels, dtype);
  attention_out_ = load_linear(weights, attention + "to_out.0", channels, channels, dtype);
  for (std::size_t b = 0; b < widths.size(); ++b) {
    const std::string name = fmt::format("{}up_blocks.{}.", decoder, b);
    const std::int64_t out = widths[widths.size() - 1 - b];
    Up up;
    for (std::int64_t i = 0; i <= config.layers_per_block; ++i, channels = out) {
      up.residuals.emplace_back(weights, fmt::format("{}resnets.{}", name, i), channels, out, kind,
                                dtype);
    }
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

Tensor ImageDecoder::attend(const ImagePart& image, const Tensor& x) const {
  const Tensor normed = image.group_norm(x, attention_norm_, config_.groups, eps, false);
  Tensor out = attention_out_(image.attend(query_(normed), key_value_(normed), numerics_));
  ops::add(out, x);
  return out;
}

Tensor ImageDecoder::operator()(const ImagePart& part, const Tensor& latents) const {
  const trace::Scope scope(trace::spans::decode_frame);
  ImagePart image = part;
  Tensor x = post_quant_.out_features() > 0 ? post_quant_(latents) : latents;
  x = image.convolve(conv_in_, x);
  x = attend(image, mid_[0](image, x));
  x = mid_[1](image, x);
  for (const Up& up : ups_) {
    for (const ResidualBlock& residual : up.residuals) x = residual(image, x);
    if (!up.upsamples) continue;
    x = image.convolve(up.upsample, x, 2);
    image = image.enlarged();
  }
  return image.convolve(conv_out_, image.group_norm(x, norm_out_, config_.groups, eps, true));
}

}  // namespace reelmesh
