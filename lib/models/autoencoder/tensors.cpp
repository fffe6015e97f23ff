// Names and shapes of the tensors of vae/.
#include "models/autoencoder/config.hpp"

namespace reelmesh {
namespace {

class Shapes {
 public:
  explicit Shapes(std::string prefix) : prefix_(std::move(prefix)) {}

  void convolution(const std::string& name, std::int64_t in, std::int64_t out, const Shape& kernel,
                   bool bias = true) {
    Shape weight{out, in};
    weight.insert(weight.end(), kernel.begin(), kernel.end());
    shapes[prefix_ + name + ".weight"] = std::move(weight);
    if (bias) shapes[prefix_ + name + ".bias"] = {out};
  }
  void linear(const std::string& name, std::int64_t channels) {
    convolution(name, channels, channels, {});
  }
  void norm(const std::string& name, std::int64_t channels) {
    shapes[prefix_ + name + ".weight"] = {channels};
    shapes[prefix_ + name + ".bias"] = {channels};
  }

  ExpectedShapes shapes;

 private:
  std::string prefix_;
};

const Shape pixels{3, 3}, one_pixel{1, 1}, causal{3, 3, 3}, point{1, 1, 1};

// diffusers' AutoencoderKL.
class ImageShapes : public Shapes {
 public:
  explicit ImageShapes(const ImageAutoencoderConfig& config) : Shapes(config.prefix), c_(config) {}

  void decoder() {
    const auto& widths = c_.block_channels;
    const std::int64_t latent = c_.latent_channels;
    if (c_.post_quant_conv) convolution("post_quant_conv", latent, latent, one_pixel);
    std::int64_t channels = widths.back();
    convolution("decoder.conv_in", latent, channels, pixels);
    middle("decoder.mid_block.", channels);
    for (std::size_t b = 0; b < widths.size(); ++b) {
      const std::string block = fmt::format("decoder.up_blocks.{}.", b);
      channels = residuals(block, c_.layers_per_block + 1, channels, widths[widths.size() - 1 - b]);
      if (b + 1 < widths.size()) {
        convolution(block + "upsamplers.0.conv", channels, channels, pixels);
      }
    }
    norm("decoder.conv_norm_out", channels);
    convolution("decoder.conv_out", channels, c_.out_channels, pixels);
  }

  void encoder() {
    const auto& widths = c_.block_channels;
    const std::int64_t moments = 2 * c_.latent_channels;
    std::int64_t channels = widths.front();
    convolution("encoder.conv_in", c_.in_channels, channels, pixels);
    for (std::size_t b = 0; b < widths.size(); ++b) {
      const std::string block = fmt::format("encoder.down_blocks.{}.", b);
      channels = residuals(block, c_.layers_per_block, channels, widths[b]);
      if (b + 1 < widths.size()) {
        convolution(block + "downsamplers.0.conv", channels, channels, pixels);
      }
    }
    middle("encoder.mid_block.", channels);
    norm("encoder.conv_norm_out", channels);
    convolution("encoder.conv_out", channels, moments, pixels);
    if (c_.quant_conv) convolution("quant_conv", moments, moments, one_pixel);
  }

 private:
  void residual(const std::string& name, std::int64_t in, std::int64_t out) {
    norm(name + ".norm1", in);
    convolution(name + ".conv1", in, out, pixels);
    norm(name + ".norm2", out);
    convolution(name + ".conv2", out, out, pixels);
    if (in != out) convolution(name + ".conv_shortcut", in, out, one_pixel);
  }
  std::int64_t residuals(const std::string& block, std::int64_t count, std::int64_t in,
                         std::int64_t out) {
    for (std::int64_t i = 0; i < count; ++i) {
      residual(fmt::format("{}resnets.{}", block, i), i == 0 ? in : out, out);
    }
    return out;
  }
  void middle(const std::string& block, std::int64_t channels) {
    residuals(block, 2, channels, channels);
    norm(block + "attentions.0.group_norm", channels);
    for (const char* part : {"to_q", "to_k", "to_v", "to_out.0"}) {
      linear(block + "attentions.0." + part, channels);
    }
  }

  const ImageAutoencoderConfig& c_;
};

// Open-Sora's VAE_Temporal.
class TemporalShapes : public Shapes {
 public:
  explicit TemporalShapes(const TemporalAutoencoderConfig& config)
      : Shapes(config.prefix), c_(config) {}

  void decoder() {
    convolution("post_quant_conv.conv", c_.channels, c_.channels, point);
    const std::size_t levels = c_.multipliers.size();
    std::int64_t channels = c_.level_channels(levels - 1);
    convolution("decoder.conv1.conv", c_.channels, channels, causal);
    residuals("decoder.res_blocks", channels, channels);
    for (std::size_t level = levels; level-- > 0;) {
      channels = residuals(fmt::format("decoder.block_res_blocks.{}", level), channels,
                           c_.level_channels(level));
      if (level > 0 && c_.doubles_frames[level - 1]) {
        convolution(fmt::format("decoder.conv_blocks.{}.conv", level - 1), channels, 2 * channels,
                    causal);
      }
    }
    norm("decoder.norm1", channels);
    convolution("decoder.conv_out.conv", channels, c_.channels, causal);
  }

  void encoder() {
    const std::size_t levels = c_.multipliers.size();
    const std::int64_t moments = 2 * c_.channels;
    std::int64_t channels = c_.filters;
    convolution("encoder.conv_in.conv", c_.channels, channels, causal, false);
    for (std::size_t level = 0; level < levels; ++level) {
      channels = residuals(fmt::format("encoder.block_res_blocks.{}", level), channels,
                           c_.level_channels(level));
      if (level + 1 < levels && c_.doubles_frames[level]) {
        convolution(fmt::format("encoder.conv_blocks.{}.conv", level), channels, channels, causal);
      }
    }
    residuals("encoder.res_blocks", channels, channels);
    norm("encoder.norm1", channels);
    convolution("encoder.conv2.conv", channels, moments, point);
    convolution("quant_conv.conv", moments, moments, point);
  }

 private:
  std::int64_t residuals(const std::string& list, std::int64_t in, std::int64_t out) {
    for (std::int64_t i = 0; i < c_.residuals; ++i, in = out) {
      const std::string name = fmt::format("{}.{}", list, i);
      norm(name + ".norm1", in);
      convolution(name + ".conv1.conv", in, out, causal, false);
      norm(name + ".norm2", out);
      convolution(name + ".conv2.conv", out, out, causal, false);
      if (in != out) convolution(name + ".conv3.conv", in, out, point, false);
    }
    return out;
  }

  const TemporalAutoencoderConfig& c_;
};

ExpectedShapes tensors(const OpenSoraVaeConfig& config, bool encoders) {
  ImageShapes image(config.image);
  image.decoder();
  if (encoders) image.encoder();
  if (!config.temporal) return image.shapes;
  TemporalShapes temporal(*config.temporal);
  temporal.decoder();
  if (encoders) temporal.encoder();
  ExpectedShapes all = std::move(image.shapes);
  all.merge(temporal.shapes);
  for (const char* name : {"scale", "shift"}) all[name] = {1, config.temporal->channels, 1, 1, 1};
  return all;
}

}  // namespace

ExpectedShapes open_sora_vae_tensors(const OpenSoraVaeConfig& config) {
  return tensors(config, true);
}
ExpectedShapes open_sora_decoder_tensors(const OpenSoraVaeConfig& config) {
  return tensors(config, false);
}

}  // namespace reelmesh
