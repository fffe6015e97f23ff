#pragma once
// The configurations of a model of Wan 2.1 or 2.2. Sources: transformer/config.json and
// vae/config.json as written by diffusers' WanTransformer3DModel and AutoencoderKLWan; defaults are
// those of their constructors.
#include "ops/pointwise.hpp"
#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

struct WanConfig {
  /// Rows of text that the transformer takes; rows behind a text are zero.
  static constexpr std::int64_t text_tokens = 512;

  std::int64_t heads = 40;
  std::int64_t head_channels = 128;
  std::int64_t layers = 40;
  std::int64_t in_channels = 16;
  std::int64_t out_channels = 16;
  std::int64_t text_channels = 4096;
  std::int64_t time_features = 256;      ///< of the sinusoid of a timestep
  std::int64_t hidden_channels = 13824;  ///< of the feed-forward layers
  ops::Patch patch;                      ///< of one frame
  double norm_eps = 1e-6;
  std::int64_t vision_channels = 0;  ///< of the image encoder's rows; 0: it takes none
  /// Rows of the image encoder's table of positions, those of a first and a last image together; 0:
  /// it has none, and takes those of one image.
  std::int64_t vision_positions = 0;

  std::int64_t channels() const { return heads * head_channels; }
  std::int64_t patch_pixels() const { return patch.rows * patch.columns; }
  /// Channels beside the noisy latents: a mask of the frames that are images, one channel for each
  /// frame of a latent one, and the latents of a video that has these frames. 0: text to video.
  std::int64_t image_channels() const { return in_channels - out_channels; }
  bool takes_image() const { return image_channels() > 0; }
  /// Whether clips may end with an image, or have to.
  bool may_end_with_image() const {
    return takes_image() && (vision_channels == 0 || vision_positions > 0);
  }
  bool ends_with_image() const { return vision_positions > 0; }

  /// Channels of the mask.
  static constexpr std::int64_t mask_channels = 4;

  /// Reads transformer/config.json. Throws Error(data) for unsupported configurations.
  static WanConfig read(const Config& config);
  bool operator==(const WanConfig&) const = default;
};

struct WanVaeConfig {
  static constexpr std::int64_t frames_per_latent = 4;  ///< after the first

  std::int64_t base_channels = 96;
  std::int64_t decoder_base_channels = 96;
  std::int64_t latent_channels = 16;
  std::vector<std::int64_t> multipliers{1, 2, 4, 4};  ///< of the channels, from pixels to latents
  std::int64_t residuals = 2;                         ///< of a block of the encoder
  /// Which of the halvings of rows and columns also halve frames, from pixels to latents.
  std::vector<bool> halves_frames{false, true, true};
  bool shortcuts = false;  ///< around the blocks that change the size of images (Wan 2.2)
  std::int64_t patch = 1;  ///< rows and columns of pixels that are channels of one (Wan 2.2: 2)
  /// By channel.
  std::vector<double> latents_mean{-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,
                                   -0.1517, 1.5508,  0.4134,  -0.0715, 0.5517,  -0.3632,
                                   -0.1922, -0.9497, 0.2503,  -0.2921};
  std::vector<double> latents_std{2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                                  3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.916};

  /// Along rows and columns.
  std::int64_t pixels_per_latent() const { return patch << halves_frames.size(); }
  std::int64_t patch_channels() const { return 3 * patch * patch; }
  std::int64_t channels(std::size_t level) const { return base_channels * multipliers.at(level); }
  std::int64_t decoder_channels(std::size_t level) const {
    return decoder_base_channels * multipliers.at(level);
  }
  /// Latent frames of a video; frames after the last 4n + 1 are left out.
  static std::int64_t latent_frames(std::int64_t frames) {
    return (frames - 1) / frames_per_latent + 1;
  }
  static std::int64_t decoded_frames(std::int64_t latent_frames) {
    return (latent_frames - 1) * frames_per_latent + 1;
  }

  /// Reads vae/config.json. Throws Error(data) for unsupported configurations.
  static WanVaeConfig read(const Config& config);
  bool operator==(const WanVaeConfig&) const = default;
};

}  // namespace reelmesh
