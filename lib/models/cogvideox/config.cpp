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

ExpectedShapes cogvideox_tensors(const CogVideoXConfig& c) {
  ExpectedShapes shapes = cogvideox_layer_tensors(c);
  if (c.learned_positions) {
    shapes[learned_positions_tensor] = {1, c.max_text_tokens + numel(c.sample_tokens()),
                                        c.channels()};
  }
  return shapes;
}

ExpectedShapes cogvideox_layer_tensors(const CogVideoXConfig& c) {
  const std::int64_t d = c.channels(), t = c.time_channels;
  ExpectedShapes shapes;
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    shapes[name + ".weight"] = {out, in};
    shapes[name + ".bias"] = {out};
  };
  const auto norm = [&](const std::string& name, std::int64_t channels) {
    shapes[name + ".weight"] = {channels};
    shapes[name + ".bias"] = {channels};
  };
  linear("patch_embed.proj", d, c.patch_features());
  if (!c.linear_patch) {
    shapes["patch_embed.proj.weight"] = {d, c.in_channels, c.patch.rows, c.patch.columns};
  }
  linear("patch_embed.text_proj", d, c.text_channels);
  linear("time_embedding.linear_1", t, d);
  linear("time_embedding.linear_2", t, t);
  if (c.ofs_channels > 0) {
    linear("ofs_embedding.linear_1", t, c.ofs_channels);
    linear("ofs_embedding.linear_2", t, t);
  }
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}.", i);
    for (const char* name : {"norm1", "norm2"}) {
      linear(block + name + ".linear", 6 * d, t);
      norm(block + name + ".norm", d);
    }
    for (const char* name : {"to_q", "to_k", "to_v", "to_out.0"}) {
      linear(block + "attn1." + name, d, d);
    }
    norm(block + "attn1.norm_q", c.head_channels);
    norm(block + "attn1.norm_k", c.head_channels);
    linear(block + "ff.net.0.proj", 4 * d, d);
    linear(block + "ff.net.2", d, 4 * d);
  }
  norm("norm_final", d);
  linear("norm_out.linear", 2 * d, t);
  norm("norm_out.norm", d);
  linear("proj_out", c.out_channels * c.patch.frames * c.patch.rows * c.patch.columns, d);
  return shapes;
}

namespace {

class VaeShapes {
 public:
  explicit VaeShapes(const CogVideoXVaeConfig& config) : c_(config) {}

  void decoder() {
    const auto& widths = c_.block_channels;
    std::int64_t channels = widths.back();
    causal("decoder.conv_in", c_.latent_channels, channels);
    for (int i = 0; i < 2; ++i) {
      residual(fmt::format("decoder.mid_block.resnets.{}", i), channels, channels, true);
    }
    for (std::size_t b = 0; b < widths.size(); ++b) {
      const std::string block = fmt::format("decoder.up_blocks.{}.", b);
      const std::int64_t out = widths[widths.size() - 1 - b];
      for (std::int64_t i = 0; i <= c_.layers_per_block; ++i) {
        residual(fmt::format("{}resnets.{}", block, i), channels, out, true);
        channels = out;
      }
      if (b + 1 < widths.size()) plain(block + "upsamplers.0.conv", channels, channels);
    }
    spatial_norm("decoder.norm_out", channels);
    causal("decoder.conv_out", channels, c_.out_channels);
  }

  void encoder() {
    const auto& widths = c_.block_channels;
    std::int64_t channels = widths.front();
    causal("encoder.conv_in", c_.in_channels, channels);
    for (std::size_t b = 0; b < widths.size(); ++b) {
      const std::string block = fmt::format("encoder.down_blocks.{}.", b);
      for (std::int64_t i = 0; i < c_.layers_per_block; ++i) {
        residual(fmt::format("{}resnets.{}", block, i), channels, widths[b], false);
        channels = widths[b];
      }
      if (b + 1 < widths.size()) plain(block + "downsamplers.0.conv", channels, channels);
    }
    for (int i = 0; i < 2; ++i) {
      residual(fmt::format("encoder.mid_block.resnets.{}", i), channels, channels, false);
    }
    group_norm("encoder.norm_out", channels);
    causal("encoder.conv_out", channels, 2 * c_.latent_channels);
  }

  ExpectedShapes shapes;

 private:
  void convolution(const std::string& name, Shape weight) {
    shapes[name + ".bias"] = {weight[0]};
    shapes[name + ".weight"] = std::move(weight);
  }
  void causal(const std::string& name, std::int64_t in, std::int64_t out) {
    convolution(name + ".conv", {out, in, 3, 3, 3});
  }
  void plain(const std::string& name, std::int64_t in, std::int64_t out) {
    convolution(name, {out, in, 3, 3});
  }
  void group_norm(const std::string& name, std::int64_t channels) {
    shapes[name + ".weight"] = {channels};
    shapes[name + ".bias"] = {channels};
  }
  void spatial_norm(const std::string& name, std::int64_t channels) {
    group_norm(name + ".norm_layer", channels);
    convolution(name + ".conv_y.conv", {channels, c_.latent_channels, 1, 1, 1});
    convolution(name + ".conv_b.conv", {channels, c_.latent_channels, 1, 1, 1});
  }
  void residual(const std::string& name, std::int64_t in, std::int64_t out, bool spatial) {
    for (int i = 1; i <= 2; ++i) {
      const std::int64_t channels = i == 1 ? in : out;
      const std::string norm = fmt::format("{}.norm{}", name, i);
      if (spatial) {
        spatial_norm(norm, channels);
      } else {
        group_norm(norm, channels);
      }
      causal(fmt::format("{}.conv{}", name, i), channels, out);
    }
    if (in != out) convolution(name + ".conv_shortcut", {out, in, 1, 1, 1});
  }

  const CogVideoXVaeConfig& c_;
};

}  // namespace

ExpectedShapes cogvideox_decoder_tensors(const CogVideoXVaeConfig& config) {
  VaeShapes shapes(config);
  shapes.decoder();
  return shapes.shapes;
}

ExpectedShapes cogvideox_encoder_tensors(const CogVideoXVaeConfig& config) {
  VaeShapes shapes(config);
  shapes.encoder();
  return shapes.shapes;
}

ExpectedShapes cogvideox_vae_tensors(const CogVideoXVaeConfig& config) {
  VaeShapes shapes(config);
  shapes.decoder();
  shapes.encoder();
  return shapes.shapes;
}

}  // namespace reelmesh
