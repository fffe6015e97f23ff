#pragma once
// The configurations of a CogVideoX model. Sources: transformer/config.json and vae/config.json as
// written by diffusers' CogVideoXTransformer3DModel and AutoencoderKLCogVideoX.
#include "ops/pointwise.hpp"
#include "sampler/video_size.hpp"
#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

struct CogVideoXConfig {
  static constexpr std::int64_t pixels_per_latent = 8;  ///< along rows and columns

  std::int64_t heads = 30;
  std::int64_t head_channels = 64;
  std::int64_t layers = 30;
  std::int64_t in_channels = 16;
  std::int64_t out_channels = 16;
  std::int64_t text_channels = 4096;
  std::int64_t time_channels = 512;
  std::int64_t max_text_tokens = 226;
  /// Frames of video; rows and columns of latents (8 × 8 pixels each).
  std::int64_t sample_frames = 49, sample_height = 60, sample_width = 90;
  std::int64_t temporal_compression = 4;
  ops::Patch patch;
  bool linear_patch = false;  ///< CogVideoX 1.5: patches span frames, linear projection
  bool rotary = false;
  double spatial_scale = 1.875, temporal_scale = 1.0;
  double norm_eps = 1e-5;
  bool flip_sin_to_cos = true;
  double freq_shift = 0;
  /// 5b-I2V: a learned table over text and video tokens is added to them, in addition to rotary
  /// positions. Clips must have the checkpoint's size and length.
  bool learned_positions = false;
  /// 1.5-5b-I2V: channels of the sinusoidal embedding of a constant offset that is added to that of
  /// the timestep; 0: none.
  std::int64_t ofs_channels = 0;
  /// That offset, as CogVideoXImageToVideoPipeline gives it.
  static constexpr std::int64_t ofs_value = 2;

  /// Channels of the latents that are denoised, and of those of an image beside them; 0: text to
  /// video.
  std::int64_t latent_channels() const { return out_channels; }
  std::int64_t image_channels() const { return in_channels - out_channels; }
  std::int64_t channels() const { return heads * head_channels; }
  std::int64_t patch_features() const {
    return in_channels * patch.frames * patch.rows * patch.columns;
  }

  /// Latent frames of n frames of video: n/temporal_compression, rounded up.
  std::int64_t latent_frames(std::int64_t frames) const {
    return (frames - 1) / temporal_compression + 1;
  }
  /// Tokens of a video of the checkpoint's own size: [frame, row, column].
  Shape sample_tokens() const;
  /// Whether a clip begins from an image, whose latents the transformer takes as further channels.
  bool takes_image() const { return image_channels() > 0; }

  /// Throws Error(usage) if there are no positions for videos of this size: learned ones are for
  /// the checkpoint's own size and length only, those of 1.5 for at most as many rows and columns.
  /// clip: its index, for the message.
  void check_size(const VideoSize& size, int clip) const;

  /// Reads transformer/config.json. Throws Error(data) for unsupported configurations (such as
  /// learned positions without rotary ones, which diffusers refuses too).
  static CogVideoXConfig read(const Config& config);
  bool operator==(const CogVideoXConfig&) const = default;
};

struct CogVideoXVaeConfig {
  std::vector<std::int64_t> block_channels{128, 256, 256, 512};
  std::int64_t layers_per_block = 3;
  std::int64_t latent_channels = 16;
  std::int64_t in_channels = 3, out_channels = 3;
  std::int64_t groups = 32;
  std::int64_t temporal_compression = 4;
  double norm_eps = 1e-6;  ///< of the encoder; in the decoder it is always 1e-6
  double scaling_factor = 1.15258426;
  /// Whether latents of an image are divided by scaling_factor (1.5) instead of multiplied.
  bool inverts_scale = false;

  /// Reads vae/config.json. Throws Error(data) for unsupported configurations.
  static CogVideoXVaeConfig read(const Config& config);
  bool operator==(const CogVideoXVaeConfig&) const = default;
};

/// The table of learned positions, [1, token, channel]: text tokens before video tokens. A rank
/// reads those of its tokens when a clip is prepared.
constexpr const char* learned_positions_tensor = "patch_embed.pos_embedding";

}  // namespace reelmesh
