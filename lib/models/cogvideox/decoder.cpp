#include "models/cogvideox/decoder.hpp"

#include <cmath>

#include "base/trace.hpp"
#include "models/common/channels_last.hpp"
#include "ops/group_norm.hpp"

namespace reelmesh {

namespace {

constexpr double norm_eps = 1e-6;  // the reference takes the configured one only in the encoder

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> decode_batches(std::int64_t latent_frames) {
  std::vector<std::pair<std::int64_t, std::int64_t>> batches;
  const std::int64_t rest = latent_frames % 2;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(1, latent_frames / 2); ++i) {
    const std::int64_t first = 2 * i + (i == 0 ? 0 : rest);
    batches.emplace_back(first, std::min(latent_frames, 2 * (i + 1) + rest) - first);
  }
  return batches;
}

std::int64_t decoded_frames(std::int64_t latent_frames) {
  return latent_frames % 2 == 1 ? 4 * (latent_frames - 1) + 1 : 4 * latent_frames;
}

// The state of decoding one clip, passed from layer to layer and from batch to batch.
struct CogVideoXDecoder::State {
  ImagePart image;  ///< at the current resolution
  Tensor latents;   ///< of this batch: [frame, row, column, channel] of the decoder's type
  EarlierFrames earlier;
};

CogVideoXDecoder::CogVideoXDecoder(const Checkpoint& weights, const CogVideoXVaeConfig& config,
                                   DType dtype)
    : config_(config), dtype_(dtype), device_(weights.device()) {
  const auto& widths = config.block_channels;
  std::int64_t channels = widths.back();
  conv_in_ = CausalConvolution(weights, "decoder.conv_in", config.latent_channels, channels, dtype,
                               causal_count_++);
  for (int i = 0; i < 2; ++i) {
    mid_.push_back(
        load_residual(weights, fmt::format("decoder.mid_block.resnets.{}", i), channels, channels));
  }
  // Each upsampling doubles height and width; the first two (4 = 2²) also double the frames.
  const auto doublings = static_cast<std::size_t>(std::log2(config.temporal_compression));
  for (std::size_t b = 0; b < widths.size(); ++b) {
    const std::string name = fmt::format("decoder.up_blocks.{}.", b);
    const std::int64_t out = widths[widths.size() - 1 - b];
    Up up;
    for (std::int64_t i = 0; i <= config.layers_per_block; ++i) {
      up.residuals.push_back(
          load_residual(weights, fmt::format("{}resnets.{}", name, i), channels, out));
      channels = out;
    }
    up.upsamples = b + 1 < widths.size();
    up.doubles_frames = b < doublings;
    if (up.upsamples) {
      up.upsample = ops::Convolution(
          weights.load(name + "upsamplers.0.conv.weight", {channels, channels, 3, 3}, dtype),
          weights.load(name + "upsamplers.0.conv.bias", {channels}, dtype), weights.numerics());
    }
    ups_.push_back(std::move(up));
  }
  norm_out_ = load_norm(weights, "decoder.norm_out", channels);
  conv_out_ = CausalConvolution(weights, "decoder.conv_out", channels, config.out_channels, dtype,
                                causal_count_++);
}

CogVideoXDecoder::Norm CogVideoXDecoder::load_norm(const Checkpoint& weights,
                                                   const std::string& name,
                                                   std::int64_t channels) const {
  const std::int64_t latent = config_.latent_channels;
  const auto pointwise = [&](const std::string& part) {
    return load_pointwise(weights, name + part + ".conv", latent, channels, 3, dtype_);
  };
  return {load_affine(weights, name + ".norm_layer", channels, dtype_), pointwise(".conv_y"),
          pointwise(".conv_b")};
}

CogVideoXDecoder::Residual CogVideoXDecoder::load_residual(const Checkpoint& weights,
                                                           const std::string& name, std::int64_t in,
                                                           std::int64_t out) {
  return {load_norm(weights, name + ".norm1", in), load_norm(weights, name + ".norm2", out),
          CausalResidual(weights, name, in, out, dtype_, causal_count_)};
}

// Spatial norm followed by silu.
void CogVideoXDecoder::apply(const Norm& norm, const State& state, const Tensor& x,
                             Tensor& out) const {
  const std::int64_t frames = x.shape(0);
  ops::SpatialNorm spatial;
  spatial.statistics = state.image.statistics(x, config_.groups, norm_eps);
  spatial.weight = norm.affine.weight;
  spatial.bias = norm.affine.bias;
  spatial.scale = norm.scale(state.latents);
  spatial.shift = norm.shift(state.latents);
  // If the number of frames is odd, frame 0 alone belongs to latent frame 0.
  const std::int64_t latent_frames = state.latents.shape(0);
  for (std::int64_t t = 0; t < frames; ++t) {
    const bool leads = frames > 1 && frames % 2 == 1;
    spatial.latent_frame.push_back(!leads   ? t * latent_frames / frames
                                   : t == 0 ? 0
                                            : 1 + (t - 1) * (latent_frames - 1) / (frames - 1));
  }
  ops::spatial_norm_silu(x, spatial, out);
}

Tensor CogVideoXDecoder::apply(const Residual& residual, State& state, const Tensor& x) const {
  const auto norm1 = [&](const Tensor& in) {
    Tensor out = Tensor::empty(in.shape(), in.dtype(), in.device());
    apply(residual.norm1, state, in, out);
    return out;
  };
  const auto norm2 = [&](Tensor in) {
    apply(residual.norm2, state, in, in);
    return in;
  };
  return residual.block(state.image, x, state.earlier, norm1, norm2);
}

Tensor CogVideoXDecoder::enlarge(const Up& up, State& state, const Tensor& x) const {
  Tensor frames = state.image.convolve(up.upsample, x, 2);
  state.image = state.image.enlarged();
  const std::int64_t count = frames.shape(0);
  if (!up.doubles_frames || count == 1) return frames;
  // The reference repeats frames before this convolution. It works frame by frame, so repeating
  // them afterwards gives the same result.
  Shape shape = frames.shape();
  shape[0] = count % 2 == 1 ? 2 * count - 1 : 2 * count;
  Tensor doubled = Tensor::empty(shape, frames.dtype(), frames.device());
  for (std::int64_t t = 0; t < shape[0] && !frames.empty(); ++t) {
    doubled.rows(t, 1).copy_from(frames.rows((t + count % 2) / 2, 1));
  }
  return doubled;
}

void CogVideoXDecoder::decode(const Sharded& latents, const ConsumeFrames& consume) const {
  std::optional<ImagePart> image = ImagePart::of(latents.group, latents.layout.without_axis(1));
  if (!image) return;
  expect(latents.local.shape(0) == latents.layout.global()[0], "decoding needs all frames, not {}",
         to_string(latents.box()));
  State state{*image, {}, EarlierFrames(causal_count_)};
  std::int64_t done = 0;
  for (const auto& [first, count] : decode_batches(latents.local.shape(0))) {
    const trace::Scope scope(trace::spans::decode_batch);
    state.image = *image;
    state.earlier.last_batch = first + count == latents.local.shape(0);
    state.latents = channels_last(latents.local.rows(first, count).on(device_.host()),
                                  static_cast<float>(1.0 / config_.scaling_factor), dtype_)
                        .on(device_);
    Tensor x = conv_in_(state.image, state.latents, state.earlier);
    for (const Residual& residual : mid_) x = apply(residual, state, x);
    for (const Up& up : ups_) {
      for (const Residual& residual : up.residuals) x = apply(residual, state, x);
      if (up.upsamples) x = enlarge(up, state, x);
    }
    apply(norm_out_, state, x, x);
    x = conv_out_(state.image, x, state.earlier);
    consume(done, x);
    done += x.shape(0);
  }
}

DecodedVideo CogVideoXDecoder::pixels(const Sharded& latents, const DecodeLayout& layout) const {
  return collect_pixels(latents, layout, CogVideoXConfig::pixels_per_latent, device_,
                        [&](const ConsumeFrames& consume) { decode(latents, consume); });
}

}  // namespace reelmesh
