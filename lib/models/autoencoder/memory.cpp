#include "models/autoencoder/memory.hpp"

#include <algorithm>

namespace reelmesh {
namespace {

// Follows a decoder layer by layer and records its peak bytes.
class Walk {
 public:
  Walk(std::int64_t frames, std::int64_t pixels, const Precision& precision)
      : frames_(frames), pixels_(pixels), precision_(precision) {}

  std::int64_t peak() const { return peak_; }
  std::int64_t values(std::int64_t channels) const {
    return frames_ * pixels_ * channels * precision_.size();
  }
  void moment(std::int64_t bytes) { peak_ = std::max(peak_, bytes); }

  /// earlier: frames of zeros that causal convolutions need before the first frame.
  void residual(std::int64_t in, std::int64_t out, std::int64_t earlier) {
    const std::int64_t before = pixels_ * precision_.size() * earlier;
    moment(2 * values(in) + before * in + values(out));
    moment(values(in) + 3 * values(out) + before * out +
           convolution_working_bytes(frames_, std::max(in, out), out, precision_));
    const std::int64_t copy =
        precision_.converts() ? frames_ * pixels_ * in * size_of(precision_.products) : 0;
    if (in != out) moment(values(in) + 2 * values(out) + copy);
  }
  void convolution(std::int64_t in, std::int64_t out) { moment(2 * values(in) + values(out)); }
  void enlarge(std::int64_t channels) {
    moment(5 * values(channels));
    pixels_ *= 4;
  }
  void double_frames(std::int64_t channels) {
    // Twice the channels become twice the frames.
    moment(4 * values(channels));
    frames_ *= 2;
  }

 private:
  std::int64_t frames_, pixels_;
  Precision precision_;
  std::int64_t peak_ = 0;
};

std::int64_t image_bytes(const ImageAutoencoderConfig& c, const ImageShare& share,
                         const Precision& precision) {
  const std::int64_t area = share.rows * share.columns;
  Walk at(1, area, precision);
  const auto& widths = c.block_channels;
  std::int64_t channels = widths.back();
  at.residual(channels, channels, 0);
  // Queries, keys and values of this part; keys and values of the whole image.
  at.moment(5 * at.values(channels) + 2 * share.pixels_of_image * channels * precision.size() +
            attention_bytes({area, share.pixels_of_image, 1, channels}, precision));
  for (std::size_t b = 0; b < widths.size(); ++b) {
    const std::int64_t out = widths[widths.size() - 1 - b];
    for (std::int64_t i = 0; i <= c.layers_per_block; ++i, channels = out) {
      at.residual(channels, out, 0);
    }
    if (b + 1 < widths.size()) at.enlarge(channels);
  }
  at.convolution(channels, c.out_channels);
  return at.peak();
}

std::int64_t temporal_bytes(const TemporalAutoencoderConfig& c, const ImageShare& share,
                            const Precision& precision) {
  constexpr std::int64_t earlier = 2;
  Walk at(c.micro_latents(), share.group_pixels, precision);
  std::int64_t channels = c.level_channels(c.multipliers.size() - 1);
  for (std::size_t level = c.multipliers.size(); level-- > 0;) {
    const std::int64_t out = c.level_channels(level);
    for (std::int64_t i = 0; i < c.residuals; ++i, channels = out) {
      at.residual(channels, out, earlier);
    }
    if (level > 0 && c.doubles_frames[level - 1]) at.double_frames(channels);
  }
  at.convolution(channels, c.channels);
  return at.peak();
}

}  // namespace

std::int64_t open_sora_decode_bytes(const OpenSoraVaeConfig& c, const ImageShare& share,
                                    const Precision& precision) {
  const std::int64_t latents = share.frames * share.rows * share.columns * c.image.latent_channels;
  const std::int64_t side = c.image.compression();
  const std::int64_t video =
      share.frames * share.rows * share.columns * side * side * c.image.out_channels;
  const std::int64_t temporal = c.temporal ? temporal_bytes(*c.temporal, share, precision) : 0;
  return std::max(image_bytes(c.image, share, precision), temporal) + video +
         4 * latents * size_of(DType::float32);
}

}  // namespace reelmesh
