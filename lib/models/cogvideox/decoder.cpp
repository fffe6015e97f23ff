#include "models/cogvideox/decoder.hpp"

#include <cmath>
#include <cstring>

#include "base/trace.hpp"
#include "layout/attend.hpp"
#include "layout/relayout.hpp"
#include "models/common/channels_last.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {

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

// What a decode of one clip carries from layer to layer and from batch to batch.
struct CogVideoXDecoder::State {
  comm::Group group;
  Layout rows;     ///< of the current resolution, one axis
  Tensor latents;  ///< this batch's, [frame, row, column, channel] of the decoder's type
  std::vector<Tensor>
      previous;  ///< of each causal convolution: its last two input frames, with halo

  // x with one more row on each side, from the ranks that hold them.
  std::pair<Tensor, ops::RowWindow> with_halo(const Tensor& x) const {
    if (x.empty()) return {x, window()};
    const Layout layout =
        rows.with_axis(0, x.shape(0)).with_axis(2, x.shape(2)).with_axis(3, x.shape(3));
    const Sharded grown = relayout({x, layout, group}, layout.grown(1, 1));
    const Box& box = grown.box();
    return {grown.local, {box.offset[1], box.extent[1], rows.global()[0]}};
  }
  ops::RowWindow window() const {
    const Box& box = own_box(rows, group);
    return {box.offset[0], box.extent[0], rows.global()[0]};
  }
};

CogVideoXDecoder::CogVideoXDecoder(const Checkpoint& weights, const CogVideoXVaeConfig& config,
                                   DType dtype)
    : config_(config), dtype_(dtype) {
  const auto& widths = config.block_channels;
  std::int64_t channels = widths.back();
  conv_in_ = load_causal(weights, "decoder.conv_in", config.latent_channels, channels);
  for (int i = 0; i < 2; ++i) {
    mid_.push_back(
        load_residual(weights, fmt::format("decoder.mid_block.resnets.{}", i), channels, channels));
  }
  // Each enlargement doubles height and width; the first two (4 = 2²) double frames as well.
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
    up.enlarges = b + 1 < widths.size();
    up.doubles_frames = b < doublings;
    if (up.enlarges) {
      up.upsample = ops::Convolution(
          weights.load(name + "upsamplers.0.conv.weight", {channels, channels, 3, 3}, dtype),
          weights.load(name + "upsamplers.0.conv.bias", {channels}, dtype));
    }
    ups_.push_back(std::move(up));
  }
  norm_out_ = load_norm(weights, "decoder.norm_out", channels);
  conv_out_ = load_causal(weights, "decoder.conv_out", channels, config.out_channels);
}

CogVideoXDecoder::Norm CogVideoXDecoder::load_norm(const Checkpoint& weights,
                                                   const std::string& name,
                                                   std::int64_t channels) const {
  const std::int64_t latent = config_.latent_channels;
  const auto pointwise = [&](const std::string& part) {
    return ops::Linear(
        weights.load(name + part + ".conv.weight", {channels, latent, 1, 1, 1}, dtype_)
            .reshape({channels, latent}),
        weights.load(name + part + ".conv.bias", {channels}, dtype_));
  };
  return {load_affine(weights, name + ".norm_layer", channels, dtype_), pointwise(".conv_y"),
          pointwise(".conv_b")};
}

CogVideoXDecoder::Causal CogVideoXDecoder::load_causal(const Checkpoint& weights,
                                                       const std::string& name, std::int64_t in,
                                                       std::int64_t out) {
  return {ops::Convolution(weights.load(name + ".conv.weight", {out, in, 3, 3, 3}, dtype_),
                           weights.load(name + ".conv.bias", {out}, dtype_)),
          causal_count_++};
}

CogVideoXDecoder::Residual CogVideoXDecoder::load_residual(const Checkpoint& weights,
                                                           const std::string& name, std::int64_t in,
                                                           std::int64_t out) {
  Residual residual{load_norm(weights, name + ".norm1", in),
                    load_norm(weights, name + ".norm2", out),
                    load_causal(weights, name + ".conv1", in, out),
                    load_causal(weights, name + ".conv2", out, out),
                    {}};
  if (in != out) {
    residual.shortcut = ops::Linear(
        weights.load(name + ".conv_shortcut.weight", {out, in, 1, 1, 1}, dtype_).reshape({out, in}),
        weights.load(name + ".conv_shortcut.bias", {out}, dtype_));
  }
  return residual;
}

Tensor CogVideoXDecoder::apply(const Causal& causal, State& state, const Tensor& x) const {
  const auto [grown, have] = state.with_halo(x);
  Tensor& previous = state.previous[causal.index];
  Tensor out = causal.convolution(grown, have, state.window(), previous);
  // The last two of (frames before, frames now); before the first frame stand copies of it.
  const std::int64_t frames = grown.shape(0);
  if (frames >= 2) {
    previous = grown.rows(frames - 2, 2).clone();
  } else {
    Shape shape = grown.shape();
    shape[0] = 2;
    const Tensor both = Tensor::empty(shape, grown.dtype());
    if (!both.empty()) {
      const Tensor before = previous.empty() ? grown : previous.rows(1, 1);
      std::memcpy(both.rows(0, 1).raw(), before.raw(), static_cast<std::size_t>(before.bytes()));
      std::memcpy(both.rows(1, 1).raw(), grown.raw(), static_cast<std::size_t>(grown.bytes()));
    }
    previous = both;
  }
  return out;
}

// Spatial norm and the activation that always follows it.
Tensor CogVideoXDecoder::apply(const Norm& norm, const State& state, const Tensor& x) const {
  const std::int64_t frames = x.shape(0), channels = x.shape(3), groups = config_.groups;
  const std::vector<double> rows =
      gather_rows(state.group, state.rows, ops::group_sums(x, groups), 2 * groups);
  std::vector<double> sums(static_cast<std::size_t>(2 * groups), 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
  const double count = static_cast<double>(frames) * static_cast<double>(state.rows.global()[0]) *
                       static_cast<double>(x.shape(2)) * static_cast<double>(channels / groups);

  ops::SpatialNorm spatial;
  for (std::size_t g = 0; g < static_cast<std::size_t>(groups); ++g) {
    const double mean = sums[g] / count;
    const double variance =
        std::max(0.0, sums[static_cast<std::size_t>(groups) + g] / count - mean * mean);
    spatial.mean.push_back(static_cast<float>(mean));
    spatial.rstd.push_back(static_cast<float>(1.0 / std::sqrt(variance + config_.norm_eps)));
  }
  spatial.weight = norm.affine.weight;
  spatial.bias = norm.affine.bias;
  spatial.scale = norm.scale(state.latents);
  spatial.shift = norm.shift(state.latents);
  // An odd number of frames begins with one that belongs to the first latent frame alone.
  const std::int64_t latent_frames = state.latents.shape(0);
  for (std::int64_t t = 0; t < frames; ++t) {
    const bool leads = frames > 1 && frames % 2 == 1;
    spatial.frame_of.push_back(!leads   ? t * latent_frames / frames
                               : t == 0 ? 0
                                        : 1 + (t - 1) * (latent_frames - 1) / (frames - 1));
  }
  return ops::spatial_norm_silu(x, spatial);
}

Tensor CogVideoXDecoder::apply(const Residual& residual, State& state, const Tensor& x) const {
  const Tensor h = apply(residual.conv1, state, apply(residual.norm1, state, x));
  Tensor out = apply(residual.conv2, state, apply(residual.norm2, state, h));
  ops::add(out, residual.shortcut.out_features() > 0 ? residual.shortcut(x) : x);
  return out;
}

Tensor CogVideoXDecoder::enlarge(const Up& up, State& state, const Tensor& x) const {
  const auto [grown, have] = state.with_halo(x);
  state.rows = state.rows.scaled(0, 2);
  const Tensor frames = up.upsample(grown, have, state.window());
  const std::int64_t count = frames.shape(0);
  if (!up.doubles_frames || count == 1) return frames;
  // Frames are repeated before the convolution, which sees one frame at a time: the same as after.
  Shape shape = frames.shape();
  shape[0] = count % 2 == 1 ? 2 * count - 1 : 2 * count;
  Tensor doubled = Tensor::empty(shape, frames.dtype());
  for (std::int64_t t = 0; t < shape[0] && !frames.empty(); ++t) {
    const Tensor from = frames.rows((t + count % 2) / 2, 1);
    std::memcpy(doubled.rows(t, 1).raw(), from.raw(), static_cast<std::size_t>(from.bytes()));
  }
  return doubled;
}

namespace {

Layout rows_of(const Layout& latents) {
  std::vector<Box> boxes;
  for (int r = 0; r < latents.ranks(); ++r) {
    const Box& box = latents.box(r);
    boxes.push_back({{box.offset[2]}, {box.empty() ? 0 : box.extent[2]}});
    expect(box.empty() ||
               (box.extent[0] == latents.global()[0] && box.extent[3] == latents.global()[3]),
           "decoding needs whole frames and columns, rank {} has {}", r, to_string(box));
  }
  return {{latents.global()[2]}, std::move(boxes)};
}

}  // namespace

void CogVideoXDecoder::decode(const Sharded& latents, const Consume& consume) const {
  State state;
  state.group = latents.group;
  state.previous.resize(causal_count_);
  const Layout rows = rows_of(latents.layout);
  std::int64_t done = 0;
  for (const auto& [first, count] : decode_batches(latents.layout.global()[0])) {
    const trace::Scope scope("decode_batch", trace::Level::layers);
    state.rows = rows;
    // A rank without rows has no frames either; it takes part in the exchanges all the same.
    Tensor mine =
        latents.local.empty()
            ? Tensor::empty({count, latents.local.shape(1), 0, latents.layout.global()[3]},
                            DType::float32)
            : latents.local.rows(first, count);
    state.latents = channels_last(mine, static_cast<float>(1.0 / config_.scaling_factor), dtype_);
    Tensor x = apply(conv_in_, state, state.latents);
    for (const Residual& residual : mid_) x = apply(residual, state, x);
    for (const Up& up : ups_) {
      for (const Residual& residual : up.residuals) x = apply(residual, state, x);
      if (up.enlarges) x = enlarge(up, state, x);
    }
    x = apply(conv_out_, state, apply(norm_out_, state, x));
    consume(done, x);
    done += x.shape(0);
  }
}

Sharded CogVideoXDecoder::pixels(const Sharded& latents) const {
  const Shape& global = latents.layout.global();
  const Layout layout = rows_of(latents.layout)
                            .scaled(0, 8)
                            .with_axis(0, decoded_frames(global[0]))
                            .with_axis(2, global[3] * 8)
                            .with_axis(3, 3);
  Sharded video{Tensor::empty(own_box(layout, latents.group).extent, DType::uint8), layout,
                latents.group};
  decode(latents, [&](std::int64_t first, const Tensor& frames) {
    if (frames.empty()) return;
    const Tensor pixels = ops::to_pixels(frames);
    std::memcpy(video.local.rows(first, frames.shape(0)).raw(), pixels.raw(),
                static_cast<std::size_t>(pixels.bytes()));
  });
  return video;
}

std::int64_t CogVideoXDecoder::bytes() const {
  std::int64_t bytes = 0;
  const auto norm = [&](const Norm& n) { bytes += n.scale.bytes() + n.shift.bytes(); };
  const auto residual = [&](const Residual& r) {
    norm(r.norm1);
    norm(r.norm2);
    bytes += r.conv1.convolution.bytes() + r.conv2.convolution.bytes() + r.shortcut.bytes();
  };
  for (const Residual& r : mid_) residual(r);
  for (const Up& up : ups_) {
    for (const Residual& r : up.residuals) residual(r);
    bytes += up.upsample.bytes();
  }
  norm(norm_out_);
  return bytes + conv_in_.convolution.bytes() + conv_out_.convolution.bytes();
}

}  // namespace reelmesh
