#pragma once
// Configurations of Open-Sora's autoencoders: vae/config.json and the tensors that it requires.
#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

/// Stable Diffusion's image autoencoder (diffusers' AutoencoderKL).
struct ImageAutoencoderConfig {
  std::vector<std::int64_t> block_channels{64};
  std::int64_t layers_per_block = 1;
  std::int64_t latent_channels = 4;
  std::int64_t in_channels = 3, out_channels = 3;
  std::int64_t groups = 32;
  bool quant_conv = true, post_quant_conv = true;
  std::string prefix;  ///< of the tensors' names

  /// Pixels per latent along each side.
  std::int64_t compression() const { return std::int64_t{1} << (block_channels.size() - 1); }

  /// Throws Error(data) for unsupported configurations.
  static ImageAutoencoderConfig read(const Config& config);
  bool operator==(const ImageAutoencoderConfig&) const = default;
};

/// Open-Sora 1.2's temporal autoencoder (VAE_Temporal) of the latents of the image autoencoder.
struct TemporalAutoencoderConfig {
  std::int64_t channels = 4;  ///< of image latents and of its own latents
  std::int64_t filters = 128;
  std::int64_t residuals = 4;  ///< residual blocks of each level
  std::vector<std::int64_t> multipliers{1, 2, 2, 4};
  /// When decoding level i + 1 → level i; they are halved when encoding level i → level i + 1.
  std::vector<bool> doubles_frames{false, true, true};
  std::int64_t groups = 32;
  std::int64_t micro_frames = 17;  ///< frames of video that are encoded or decoded together
  std::string prefix = "temporal_vae.";

  /// Frames of video per frame of latents.
  std::int64_t compression() const;
  /// Frames of latents of a group of at most micro_frames frames of video.
  std::int64_t latents(std::int64_t frames) const {
    return (frames + compression() - 1) / compression();
  }
  std::int64_t micro_latents() const { return latents(micro_frames); }
  std::int64_t level_channels(std::size_t level) const { return filters * multipliers.at(level); }

  /// Throws Error(data) for unsupported configurations.
  static TemporalAutoencoderConfig read(const Config& config);
};

/// What a vae/ folder holds: release 1.0 has AutoencoderKL, release 1.2 OpenSoraVAE_V1_2.
struct OpenSoraVaeConfig {
  ImageAutoencoderConfig image;
  std::optional<TemporalAutoencoderConfig> temporal;
  /// Latents are divided by it before image decoding, and multiplied by it after image encoding.
  /// Always Stable Diffusion's value: Open-Sora ignores the value in the file, even for SDXL's
  /// autoencoder, which has a different one.
  static constexpr double scaling_factor = 0.18215;

  /// Chooses by _class_name. Throws Error(data) for other classes and unsupported configurations.
  static OpenSoraVaeConfig read(const Config& config);

  /// What OpenSoraEncoder's latents are to be multiplied by to be those of the transformer.
  double latent_factor() const { return temporal ? 1 : scaling_factor; }

  /// Latent frames of a video with `frames` frames.
  std::int64_t latent_frames(std::int64_t frames) const;
};

}  // namespace reelmesh
