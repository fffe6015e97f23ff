#include "models/cogvideox/config.hpp"

namespace reelmesh {
CogVideoXConfig CogVideoXConfig::read(const Config& config) {
  constexpr std::int64_t max_value = 1 << 20;
  constexpr std::int64_t max_latents = 2048;  // 16384 pixels, the limit of sample.height
  require_class(config, {"CogVideoXTransformer3DModel"});
  CogVideoXConfig c;
  c.heads = config.get_int("num_attention_heads", c.heads, 1, 4096);
  c.head_channels = config.get_int("attention_head_dim", c.head_channels, 2, 4096);
  c.layers = config.get_int("num_layers", c.layers, 1, 1000);
  c.in_channels = config.get_int("in_channels", c.in_channels, 1, 4096);
  c.out_channels = config.get_int("out_channels", 16, 1, 4096);
  c.text_channels = config.get_int("text_embed_dim", c.text_channels, 1, max_value);
  c.time_channels = config.get_int("time_embed_dim", c.time_channels, 1, max_value);
  c.max_text_tokens = config.get_int("max_text_seq_length", c.max_text_tokens, 1, 65536);
  c.sample_frames = config.get_int("sample_frames", c.sample_frames, 1, 10000);
  c.sample_height = config.get_int("sample_height", c.sample_height, 1, max_latents);
  c.sample_width = config.get_int("sample_width", c.sample_width, 1, max_latents);
  c.temporal_compression = config.get_int("temporal_compression_ratio", 4, 1, 64);
  c.patch.rows = c.patch.columns = config.get_int("patch_size", 2, 1, 64);
  if (const auto frames = config.find_int("patch_size_t", 1, 64)) {
    c.patch.frames = *frames;
    c.linear_patch = true;
  }
  c.rotary = config.get_bool("use_rotary_positional_embeddings", false);
  c.spatial_scale = config.get_double("spatial_interpolation_scale", c.spatial_scale, 1e-3, 1e3);
  c.temporal_scale = config.get_double("temporal_interpolation_scale", c.temporal_scale, 1e-3, 1e3);
  c.norm_eps = config.get_double("norm_eps", c.norm_eps, 1e-12, 1);
  c.flip_sin_to_cos = config.get_bool("flip_sin_to_cos", true);
  c.freq_shift = config.get_double("freq_shift", 0, -1, 1);
  const std::string file = config.file().string();
  only_supported<std::string>(config, "activation_fn",
                              config.get_string("activation_fn", "gelu-approximate"),
                              "gelu-approximate");
  only_supported<std::string>(config, "timestep_activation_fn",
                              config.get_string("timestep_activation_fn", "silu"), "silu");
  only_supported(config, "attention_bias", config.get_bool("attention_bias", true), true);
  only_supported(config, "norm_elementwise_affine",
                 config.get_bool("norm_elementwise_affine", true), true);
  require(c.in_channels == c.out_channels || c.in_channels == 2 * c.out_channels, Status::data,
          "{}: in_channels is {}, expected {} (text to video) or {} (image to video) for "
          "out_channels {}",
          file, c.in_channels, c.out_channels, 2 * c.out_channels, c.out_channels);
  c.learned_positions = config.get_bool("use_learned_positional_embeddings", false);
  require(!c.learned_positions || (c.rotary && !c.linear_patch), Status::data,
          "{}: use_learned_positional_embeddings is true, expected "
          "use_rotary_positional_embeddings true and patch_size_t null with it",
          file);
  c.ofs_channels = config.get_int("ofs_embed_dim", 0, 0, max_value);
  require(c.ofs_channels == 0 || (c.takes_image() && c.ofs_channels == c.time_channels),
          Status::data,
          "{}: ofs_embed_dim is {}, expected null, or for image to video {} as time_embed_dim",
          file, c.ofs_channels, c.time_channels);
  const std::int64_t split = c.rotary ? c.head_channels : c.channels();
  require(split % 16 == 0, Status::data, "{}: position tables need a multiple of 16 {}, found {}",
          file, c.rotary ? "head channels" : "channels", split);
  return c;
}

CogVideoXVaeConfig CogVideoXVaeConfig::read(const Config& config) {
  require_class(config, {"AutoencoderKLCogVideoX"});
  CogVideoXVaeConfig c;
  c.block_channels = config.get_ints("block_out_channels", c.block_channels, 1, 65536);
  c.layers_per_block = config.get_int("layers_per_block", c.layers_per_block, 1, 64);
  c.latent_channels = config.get_int("latent_channels", c.latent_channels, 1, 4096);
  c.in_channels = config.get_int("in_channels", 3, 1, 64);
  c.out_channels = config.get_int("out_channels", 3, 1, 64);
  c.groups = config.get_int("norm_num_groups", c.groups, 1, 4096);
  c.norm_eps = config.get_double("norm_eps", c.norm_eps, 1e-12, 1);
  c.scaling_factor = config.get_double("scaling_factor", c.scaling_factor, 1e-4, 1e4);
  c.inverts_scale = config.get_bool("invert_scale_latents", false);
  const double ratio = config.get_double("temporal_compression_ratio", 4);
  const std::string file = config.file().string();
  only_supported(config, "temporal_compression_ratio", ratio, 4.0);
  only_supported<std::string>(config, "act_fn", config.get_string("act_fn", "silu"), "silu");
  only_supported(config, "use_post_quant_conv", config.get_bool("use_post_quant_conv", false),
                 false);
  only_supported(config, "use_quant_conv", config.get_bool("use_quant_conv", false), false);
  only_supported(config, "in_channels", c.in_channels, std::int64_t{3});
  only_supported(config, "out_channels", c.out_channels, std::int64_t{3});
  require(c.block_channels.size() == 4, Status::data,
          "{}: block_out_channels has {} entries, expected 4", file, c.block_channels.size());
  for (const std::int64_t channels : c.block_channels) {
    require(channels % c.groups == 0, Status::data,
            "{}: found {} channels, expected a multiple of norm_num_groups ({})", file, channels,
            c.groups);
  }
  return c;
}

Shape CogVideoXConfig::sample_tokens() const {
  const std::int64_t latents = latent_frames(sample_frames);
  return {(latents + patch.frames - 1) / patch.frames, sample_height / patch.rows,
          sample_width / patch.columns};
}

void CogVideoXConfig::check_size(const VideoSize& size, int clip) const {
  const std::int64_t height = sample_height * pixels_per_latent,
                     width = sample_width * pixels_per_latent;
  if (learned_positions) {
    require(size == VideoSize{height, width, sample_frames}, Status::usage,
            "sample.height, sample.width, sample.frames: clip {} has {} x {} pixels and {} frames, "
            "expected {} x {} and {}: this checkpoint has no positions for another size",
            clip, size.height, size.width, size.frames, height, width, sample_frames);
  }
  if (linear_patch) {
    require(size.height <= height && size.width <= width, Status::usage,
            "sample.height, sample.width: clip {} has {} x {} pixels, expected at most {} x {}: "
            "this checkpoint has no positions for more",
            clip, size.height, size.width, height, width);
  }
}

}  // namespace reelmesh
