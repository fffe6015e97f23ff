#include "models/autoencoder/config.hpp"

#include <algorithm>

namespace reelmesh {
namespace {

constexpr std::int64_t max_channels = 65536;

void check_groups(const Config& config, const std::vector<std::int64_t>& channels,
                  std::int64_t groups) {
  for (const std::int64_t n : channels) {
    require(n % groups == 0, Status::data,
            "{}: found {} channels, expected a multiple of norm_num_groups ({})",
            config.file().string(), n, groups);
  }
}

}  // namespace

ImageAutoencoderConfig ImageAutoencoderConfig::read(const Config& config) {
  ImageAutoencoderConfig c;
  c.block_channels = config.get_ints("block_out_channels", c.block_channels, 1, max_channels);
  c.layers_per_block = config.get_int("layers_per_block", c.layers_per_block, 1, 64);
  c.latent_channels = config.get_int("latent_channels", c.latent_channels, 1, 4096);
  c.in_channels = config.get_int("in_channels", c.in_channels, 1, 64);
  c.out_channels = config.get_int("out_channels", c.out_channels, 1, 64);
  c.groups = config.get_int("norm_num_groups", c.groups, 1, 4096);
  c.quant_conv = config.get_bool("use_quant_conv", true);
  c.post_quant_conv = config.get_bool("use_post_quant_conv", true);
  only_supported<std::string>(config, "act_fn", config.get_string("act_fn", "silu"), "silu");
  only_supported(config, "in_channels", c.in_channels, std::int64_t{3});
  only_supported(config, "out_channels", c.out_channels, std::int64_t{3});
  only_supported(config, "mid_block_add_attention",
                 config.get_bool("mid_block_add_attention", true), true);
  for (const char* side : {"Down", "Up"}) {
    const std::string key = side == std::string("Up") ? "up_block_types" : "down_block_types";
    const std::string plain =
        std::string(side) + (side == std::string("Up") ? "DecoderBlock2D" : "EncoderBlock2D");
    for (const std::string& type : config.get_strings(key, {})) {
      only_supported(config, key, type, plain);
    }
  }
  require(!c.block_channels.empty() && c.block_channels.size() <= 8, Status::data,
          "{}: block_out_channels has {} entries, expected 1 to 8", config.file().string(),
          c.block_channels.size());
  check_groups(config, c.block_channels, c.groups);
  return c;
}

std::int64_t TemporalAutoencoderConfig::compression() const {
  return std::int64_t{1} << std::count(doubles_frames.begin(), doubles_frames.end(), true);
}

TemporalAutoencoderConfig TemporalAutoencoderConfig::read(const Config& config) {
  TemporalAutoencoderConfig c;
  c.channels = config.get_int("in_out_channels", c.channels, 1, 4096);
  for (const char* key : {"latent_embed_dim", "embed_dim"}) {
    only_supported(config, key, config.get_int(key, c.channels), c.channels);
  }
  c.filters = config.get_int("filters", c.filters, 1, max_channels);
  c.residuals = config.get_int("num_res_blocks", c.residuals, 1, 64);
  c.multipliers = config.get_ints("channel_multipliers", c.multipliers, 1, 1024);
  c.doubles_frames = config.get_bools("temporal_downsample", c.doubles_frames);
  c.groups = config.get_int("num_groups", c.groups, 1, 4096);
  only_supported<std::string>(config, "activation_fn", config.get_string("activation_fn", "swish"),
                              "swish");
  require(!c.multipliers.empty() && c.multipliers.size() <= 8 &&
              c.doubles_frames.size() + 1 == c.multipliers.size(),
          Status::data,
          "{}: found {} channel_multipliers and {} entries of temporal_downsample, expected 1 to "
          "8, and one fewer",
          config.file().string(), c.multipliers.size(), c.doubles_frames.size());
  for (std::size_t i = 0; i < c.multipliers.size(); ++i) {
    check_groups(config, {c.level_channels(i)}, c.groups);
  }
  return c;
}

OpenSoraVaeConfig OpenSoraVaeConfig::read(const Config& config) {
  const std::string name =
      require_class(config, {"AutoencoderKL", "OpenSoraVAE_V1_2", "VideoAutoencoderPipeline"});
  require(!name.empty(), Status::data,
          "{}: no _class_name, expected AutoencoderKL or OpenSoraVAE_V1_2", config.file().string());
  OpenSoraVaeConfig c;
  if (name == "AutoencoderKL") {
    c.image = ImageAutoencoderConfig::read(config);
    return c;
  }
  c.image = ImageAutoencoderConfig::read(config.get_object("vae_2d"));
  c.image.prefix = "spatial_vae.module.";
  c.temporal = TemporalAutoencoderConfig::read(config.get_object("vae_temporal"));
  c.temporal->micro_frames =
      config.get_int("micro_frame_size", c.temporal->micro_frames, 1, 1 << 20);
  only_supported(config, "cal_loss", config.get_bool("cal_loss", false), false);
  only_supported(config, "the image autoencoder's latent_channels", c.image.latent_channels,
                 c.temporal->channels);
  return c;
}

std::int64_t OpenSoraVaeConfig::latent_frames(std::int64_t frames) const {
  if (!temporal) return frames;
  const std::int64_t micro = temporal->micro_frames;
  return frames / micro * temporal->micro_latents() + temporal->latents(frames % micro);
}

}  // namespace reelmesh
