#pragma once
// The configurations of a CogVideoX folder. Sources: transformer/config.json and vae/config.json as
// diffusers' CogVideoXTransformer3DModel and AutoencoderKLCogVideoX write them.
#include "ops/pointwise.hpp"
#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

struct CogVideoXConfig {
  std::int64_t heads = 30;
  std::int64_t head_channels = 64;
  std::int64_t layers = 30;
  std::int64_t in_channels = 16;
  std::int64_t out_channels = 16;
  std::int64_t text_channels = 4096;
  std::int64_t time_channels = 512;
  std::int64_t max_text_tokens = 226;
  std::int64_t sample_frames = 49, sample_height = 60, sample_width = 90;  ///< of latents: 8 pixels
  std::int64_t temporal_compression = 4;
  ops::Patch patch;
  bool linear_patch = false;  ///< releases 1.5: patches over time, a linear projection
  bool rotary = false;
  double spatial_scale = 1.875, temporal_scale = 1.0;
  double norm_eps = 1e-5;
  bool flip_sin_to_cos = true;
  double freq_shift = 0;

  std::int64_t channels() const { return heads * head_channels; }
  std::int64_t patch_features() const {
    return in_channels * patch.frames * patch.rows * patch.columns;
  }

  /// Error(data) for what this program does not compute (image-to-video checkpoints, other
  /// activations).
  static CogVideoXConfig read(const Config& config);
};

struct CogVideoXVaeConfig {
  std::vector<std::int64_t> block_channels{128, 256, 256, 512};
  std::int64_t layers_per_block = 3;
  std::int64_t latent_channels = 16;
  std::int64_t in_channels = 3, out_channels = 3;
  std::int64_t groups = 32;
  std::int64_t temporal_compression = 4;
  double norm_eps = 1e-6;
  double scaling_factor = 1.15258426;

  static CogVideoXVaeConfig read(const Config& config);
};

/// Names and shapes of transformer/, and of vae/ : everything, or what decoding needs.
ExpectedShapes cogvideox_tensors(const CogVideoXConfig& config);
ExpectedShapes cogvideox_vae_tensors(const CogVideoXVaeConfig& config);
ExpectedShapes cogvideox_decoder_tensors(const CogVideoXVaeConfig& config);

}  // namespace reelmesh
