#include "models/cogvideox/memory.hpp"

#include <algorithm>

#include "layout/attend.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "ops/attention.hpp"

namespace reelmesh {

std::int64_t cogvideox_working_bytes(const CogVideoXConfig& c, const CogVideoXSizes& s,
                                     const Precision& precision) {
  const std::int64_t size = precision.size(), head = c.head_channels;
  const std::int64_t unit = (s.text_tokens + s.video_tokens) * s.batch * c.channels() * size;
  const std::int64_t queries = s.row_tokens * s.batch * s.heads * head * size;
  const std::int64_t keys = std::min(Attend::part_keys(precision.on_gpu), s.all_tokens);
  const std::int64_t key = s.single_rank ? 0 : s.batch * 2 * s.heads * head * size;
  // Three parts of keys and values: being received, being sent, and in use.
  std::int64_t parts = 3 * keys * key;
  if (precision.on_gpu && ops::may_use_fused_attention(precision.tensors, s.all_tokens, head)) {
    // All keys and values of one share of the heads, as received and in global order, and those of
    // the previous share.
    const std::int64_t shares = Attend::head_shares(s.heads - (s.uses_ulysses ? 1 : 0));
    parts = std::max(parts, 3 * s.all_tokens * key / shares);
  }
  const std::int64_t converted = precision.converts() ? size_of(precision.products) / size : 0;

  const std::int64_t features = c.out_channels * c.patch.frames * c.patch.rows * c.patch.columns;
  // Patches of the latents of each clip's image; at most as many clips as items of the batch.
  const std::int64_t images = c.takes_image() ? s.batch * s.video_tokens * features : 0;
  const std::int64_t positions =
      c.learned_positions ? (s.text_tokens + s.video_tokens) * c.channels() : 0;
  const std::int64_t held = s.text_tokens * s.batch * c.text_channels * size +
                            s.video_tokens * features * (6 + s.batch) * size_of(DType::float32) +
                            s.video_tokens * (c.channels() + c.patch_features()) * size +
                            (images + positions) * size;
  // The residual stream, its normalised copy, queries, keys and values.
  const std::int64_t attention =
      5 * unit + (s.uses_ulysses ? queries + 2 * unit : 0) + parts +
      attention_bytes({s.row_tokens, keys, s.batch * s.heads, head}, precision);
  // The residual stream, its normalised copy, queries and attention results are still allocated
  // during the MLP, which has four times the channels.
  const std::int64_t feed_forward = (10 + 4 * converted) * unit;
  return held + std::max(attention, feed_forward);
}

namespace {

// Follows the decoder or the encoder layer by layer and records the peak bytes of one batch of
// frames. Each causal convolution keeps its last two input frames, and replaces them in every batch
// but the last.
class BatchPeak {
 public:
  /// kept: bytes that causal convolutions keep from the previous batch; 0 for the first one. last:
  /// whether this is the last batch.
  BatchPeak(std::int64_t frames, std::int64_t pixels, std::int64_t kept, bool last,
            const Precision& precision)
      : frames_(frames),
        pixels_(pixels),
        first_(kept == 0),
        last_(last),
        kept_(kept),
        precision_(precision) {}

  std::int64_t kept() const { return kept_; }
  std::int64_t peak() const { return peak_; }

  void convolution(std::int64_t in, std::int64_t out) { causal(values(in) + values(out), in, out); }
  void residual(std::int64_t in, std::int64_t out) {
    const std::int64_t x = values(in);
    causal(2 * x + values(out), in, out);
    causal(x + 2 * values(out), out, out);
    const std::int64_t copy =
        precision_.converts() ? x / precision_.size() * size_of(precision_.products) : 0;
    moment(x + values(out) + (in == out ? 0 : values(out) + copy));
  }
  void enlarge(std::int64_t channels, bool doubles_frames) {
    const std::int64_t before = values(channels);
    pixels_ *= 4;
    const std::int64_t frames = values(channels);
    moment(before + frames + convolution_working_bytes(frames_, channels, channels, precision_));
    if (!doubles_frames || frames_ == 1) return;
    frames_ = frames_ % 2 == 1 ? 2 * frames_ - 1 : 2 * frames_;
    moment(before + frames + values(channels));
  }
  void reduce(std::int64_t channels, bool halves_frames) {
    if (halves_frames) {
      const std::int64_t before = values(channels);
      frames_ = (frames_ + 1) / 2;
      moment(before + values(channels));
    }
    const std::int64_t before = values(channels);
    pixels_ /= 4;
    moment(before + values(channels) +
           convolution_working_bytes(frames_, channels, channels, precision_, {3, 2, 0, 1}));
  }

 private:
  std::int64_t values(std::int64_t channels) const {
    return frames_ * pixels_ * channels * precision_.size();
  }
  void causal(std::int64_t bytes, std::int64_t in, std::int64_t out) {
    const std::int64_t two = 2 * pixels_ * in * precision_.size();
    moment(bytes + (last_ ? 0 : two) + convolution_working_bytes(frames_, in, out, precision_));
    if (first_ && !last_) kept_ += two;
  }
  void moment(std::int64_t bytes) { peak_ = std::max(peak_, kept_ + bytes); }

  std::int64_t frames_, pixels_;
  bool first_, last_;
  std::int64_t kept_, peak_ = 0;
  Precision precision_;
};

void walk_decoder(const CogVideoXVaeConfig& c, BatchPeak& at) {
  const auto& widths = c.block_channels;
  std::int64_t channels = widths.back();
  at.convolution(c.latent_channels, channels);
  for (int i = 0; i < 2; ++i) at.residual(channels, channels);
  std::int64_t doublings = c.temporal_compression;
  for (std::size_t b = 0; b < widths.size(); ++b) {
    const std::int64_t out = widths[widths.size() - 1 - b];
    for (std::int64_t i = 0; i <= c.layers_per_block; ++i, channels = out) {
      at.residual(channels, out);
    }
    if (b + 1 == widths.size()) break;
    at.enlarge(channels, doublings > 1);
    doublings /= 2;
  }
  at.convolution(channels, c.out_channels);
}

void walk_encoder(const CogVideoXVaeConfig& c, BatchPeak& at) {
  const auto& widths = c.block_channels;
  std::int64_t channels = widths.front(), halvings = c.temporal_compression;
  at.convolution(c.in_channels, channels);
  for (std::size_t b = 0; b < widths.size(); ++b) {
    for (std::int64_t i = 0; i < c.layers_per_block; ++i, channels = widths[b]) {
      at.residual(channels, widths[b]);
    }
    if (b + 1 == widths.size()) break;
    at.reduce(channels, halvings > 1);
    halvings /= 2;
  }
  for (int i = 0; i < 2; ++i) at.residual(channels, channels);
  at.convolution(channels, 2 * c.latent_channels);
}

// The highest peak of the batches of a clip. batches: (first frame, number of frames). walk:
// follows one batch, whose frames have `pixels` pixels at first.
template <class Walk>
std::int64_t max_peak(const std::vector<std::pair<std::int64_t, std::int64_t>>& batches,
                      std::int64_t pixels, const Precision& precision, const Walk& walk) {
  std::int64_t peak = 0, kept = 0;
  for (const auto& batch : batches) {
    BatchPeak at(batch.second, pixels, kept, &batch == &batches.back(), precision);
    walk(at);
    kept = at.kept();
    peak = std::max(peak, at.peak());
  }
  return peak;
}

constexpr std::int64_t pixels_of_latent =
    CogVideoXConfig::pixels_per_latent * CogVideoXConfig::pixels_per_latent;

}  // namespace

std::int64_t cogvideox_decode_bytes(const CogVideoXVaeConfig& c, const Shape& latents,
                                    const Precision& precision) {
  const std::int64_t area = latents.at(1) * latents.at(2);
  const std::int64_t peak = max_peak(decode_batches(latents.at(0)), area, precision,
                                     [&](BatchPeak& batch) { walk_decoder(c, batch); });
  const std::int64_t video = decoded_frames(latents[0]) * area * pixels_of_latent * c.out_channels;
  return peak + video + numel(latents) * c.latent_channels * 2 * size_of(DType::float32);
}

std::int64_t cogvideox_encode_bytes(const CogVideoXVaeConfig& c, const Shape& latents,
                                    std::int64_t frames, const Precision& precision) {
  const std::int64_t area = latents.at(1) * latents.at(2) * pixels_of_latent;
  const std::int64_t peak = max_peak(encode_batches(frames), area, precision,
                                     [&](BatchPeak& batch) { walk_encoder(c, batch); });
  return peak + frames * area * c.in_channels +
         numel(latents) * c.latent_channels * size_of(DType::float32);
}

}  // namespace reelmesh
