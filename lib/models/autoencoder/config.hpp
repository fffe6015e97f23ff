#pragma once
// The autoencoders of Open-Sora: vae/config.json and the tensors that it asks for.
#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

/// The autoencoder of images that Stable Diffusion uses (diffusers' AutoencoderKL).
struct ImageAutoencoderConfig {
  std::vector<std::int64_t> block_channels{128, 256, 512, 512};
  std::int64_t layers_per_block = 2;
  std::int64_t latent_channels = 4;
  std::int64_t in_channels = 3, out_channels = 3;
  std::int64_t groups = 32;
  bool quant_conv = true, post_quant_conv = true;
  std::string prefix;  ///< of the tensors' names

  /// Pixels per latent along each side.
  std::int64_t compression() const { return std::int64_t{1} << (block_channels.size() - 1); }

  /// Error(data) for what this program does not compute.
  static ImageAutoencoderConfig read(const Config& config);
};

/// The autoencoder in time of Open-Sora 1.2 (VAE_Temporal), around that of images.
struct TemporalAutoencoderConfig {
  std::int64_t channels = 4;  ///< of both its sides
  std::int64_t filters = 128;
  std::int64_t residuals = 4;  ///< of each level
  std::vector<std::int64_t> multipliers{1, 2, 2, 4};
  std::vector<bool> doubles_frames{false, true, true};  ///< from level i + 1 to level i
  std::int64_t groups = 32;
  std::int64_t micro_frames = 17;  ///< frames of video that are coded together
  std::string prefix = "temporal_vae.";

  /// Frames of video per frame of latents.
  std::int64_t compression() const;
  /// Frames of latents of micro_frames frames of video.
  std::int64_t micro_latents() const { return (micro_frames + compression() - 1) / compression(); }
  std::int64_t level_channels(std::size_t level) const { return filters * multipliers.at(level); }

  static TemporalAutoencoderConfig read(const Config& config);
};

/// What a vae/ folder holds: release 1.0 has AutoencoderKL, release 1.2 OpenSoraVAE_V1_2.
struct OpenSoraVaeConfig {
  ImageAutoencoderConfig image;
  std::optional<TemporalAutoencoderConfig> temporal;
  /// Latents are divided by it before they are decoded as images. Always that of Stable Diffusion:
  /// Open-Sora does not ask the file, not even for the autoencoder of SDXL, which has another.
  static constexpr double scaling_factor = 0.18215;

  /// By _class_name. Error(data) for another class and for what this program does not compute.
  static OpenSoraVaeConfig read(const Config& config);

  /// Frames of latents of a video of so many frames.
  std::int64_t latent_frames(std::int64_t frames) const;
};

/// Names and shapes of vae/: everything, or what decoding needs.
ExpectedShapes open_sora_vae_tensors(const OpenSoraVaeConfig& config);
ExpectedShapes open_sora_decoder_tensors(const OpenSoraVaeConfig& config);

}  // namespace reelmesh
