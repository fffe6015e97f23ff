#include "models/wan/config.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace reelmesh {
namespace {

// Error(data) unless the channels of the images before a block divide as its shortcut needs it.
void check_shortcuts(const WanVaeConfig& c, std::size_t level, const std::string& file) {
  const auto check = [&](std::int64_t folded, std::int64_t channels) {
    require(folded % channels == 0, Status::data,
            "{}: a shortcut between {} and {} channels, expected a divisor (base_dim, "
            "decoder_base_dim, dim_mult)",
            file, folded, channels);
  };
  const std::size_t last = c.multipliers.size() - 1;
  const auto pixels = [&](std::size_t halving) { return c.halves_frames[halving] ? 8 : 4; };
  check((level == 0 ? c.base_channels : c.channels(level - 1)) * (level < last ? pixels(level) : 1),
        c.channels(level));
  if (level == 0) return;
  check(c.decoder_channels(level) * pixels(level - 1),
        c.decoder_channels(std::min(level + 1, last)));
}

}  // namespace

WanConfig WanConfig::read(const Config& config) {
  constexpr std::int64_t max_value = 1 << 20;
  require_class(config, {"WanTransformer3DModel"});
  WanConfig c;
  c.heads = config.get_int("num_attention_heads", c.heads, 1, 4096);
  c.head_channels = config.get_int("attention_head_dim", c.head_channels, 2, 4096);
  c.layers = config.get_int("num_layers", c.layers, 1, 1000);
  c.in_channels = config.get_int("in_channels", c.in_channels, 1, 4096);
  c.out_channels = config.get_int("out_channels", c.out_channels, 1, 4096);
  c.text_channels = config.get_int("text_dim", c.text_channels, 1, max_value);
  c.time_features = config.get_int("freq_dim", c.time_features, 2, max_value);
  c.hidden_channels = config.get_int("ffn_dim", c.hidden_channels, 1, max_value);
  c.norm_eps = config.get_double("eps", c.norm_eps, 1e-12, 1);
  const std::string file = config.file().string();
  c.vision_channels = config.get_int("image_dim", 0, 1, max_value);
  c.vision_positions = config.get_int("pos_embed_seq_len", 0, 2, max_value);
  const std::vector<std::int64_t> patch = config.get_ints("patch_size", {1, 2, 2}, 1, 64);
  require(patch.size() == 3 && patch[0] == 1, Status::data,
          "{}: patch_size is [{}], expected three numbers, the first of them 1", file,
          fmt::join(patch, ", "));
  c.patch = {1, patch[1], patch[2]};
  only_supported(config, "cross_attn_norm", config.get_bool("cross_attn_norm", true), true);
  only_supported<std::string>(config, "qk_norm",
                              config.get_string("qk_norm", "rms_norm_across_heads"),
                              "rms_norm_across_heads");
  const std::int64_t with_image = 2 * c.out_channels + mask_channels;
  require(c.in_channels == c.out_channels || c.in_channels == with_image, Status::data,
          "{}: in_channels is {}, expected {} (text to video) or {} (image to video) for {} "
          "out_channels",
          file, c.in_channels, c.out_channels, with_image, c.out_channels);
  const std::int64_t added = config.get_int("added_kv_proj_dim", 0);
  const std::int64_t expected = c.vision_channels > 0 ? c.channels() : 0;
  require(added == expected, Status::data, "{}: added_kv_proj_dim is {}, expected {}", file,
          config.has("added_kv_proj_dim") ? std::to_string(added) : "null",
          expected > 0 ? fmt::format("{}, the channels of the transformer", expected)
                       : "null without image_dim");
  require(c.vision_channels == 0 || c.takes_image(), Status::data,
          "{}: image_dim is {}, expected null for text to video", file, c.vision_channels);
  require(c.vision_positions == 0 || c.vision_channels > 0, Status::data,
          "{}: pos_embed_seq_len is {}, expected null without image_dim", file, c.vision_positions);
  require(c.head_channels % 2 == 0, Status::data,
          "{}: attention_head_dim is {}, expected an even number", file, c.head_channels);
  require(c.time_features % 2 == 0, Status::data, "{}: freq_dim is {}, expected an even number",
          file, c.time_features);
  return c;
}

WanVaeConfig WanVaeConfig::read(const Config& config) {
  require_class(config, {"AutoencoderKLWan"});
  WanVaeConfig c;
  c.base_channels = config.get_int("base_dim", c.base_channels, 1, 65536);
  c.latent_channels = config.get_int("z_dim", c.latent_channels, 1, 4096);
  c.multipliers = config.get_ints("dim_mult", c.multipliers, 1, 64);
  c.residuals = config.get_int("num_res_blocks", c.residuals, 1, 64);
  c.halves_frames = config.get_bools("temperal_downsample", c.halves_frames);
  c.latents_mean = config.get_doubles("latents_mean", c.latents_mean);
  c.latents_std = config.get_doubles("latents_std", c.latents_std);
  const std::string file = config.file().string();
  c.decoder_base_channels = config.get_int("decoder_base_dim", c.base_channels, 1, 65536);
  c.shortcuts = config.get_bool("is_residual", false);
  c.patch = config.get_int("patch_size", c.patch, 1, 2);
  only_supported(config, "in_channels", config.get_int("in_channels", 3), c.patch_channels());
  only_supported(config, "out_channels", config.get_int("out_channels", 3), c.patch_channels());
  only_supported(config, "scale_factor_temporal", config.get_int("scale_factor_temporal", 4),
                 frames_per_latent);
  require(config.get_doubles("attn_scales", {}).empty(), Status::data,
          "{}: attn_scales is not empty, expected [] (no other value is supported)", file);
  require(c.multipliers.size() == 4, Status::data, "{}: dim_mult has {} entries, expected 4", file,
          c.multipliers.size());
  require(c.halves_frames.size() == 3 && std::ranges::count(c.halves_frames, true) == 2,
          Status::data,
          "{}: temperal_downsample has {} entries of which {} are true, expected 3 "
          "and 2",
          file, c.halves_frames.size(), std::ranges::count(c.halves_frames, true));
  only_supported(config, "scale_factor_spatial", config.get_int("scale_factor_spatial", 8),
                 c.pixels_per_latent());
  for (std::size_t level = 0; level < c.multipliers.size(); ++level) {
    if (c.shortcuts) {
      check_shortcuts(c, level, file);
    } else {  // the decoder halves them
      require(level == 0 || c.decoder_channels(level) % 2 == 0, Status::data,
              "{}: {} channels times {} of dim_mult, expected an even number", file,
              c.decoder_base_channels, c.multipliers[level]);
    }
  }
  for (const auto& [key, values] :
       {std::pair{"latents_mean", &c.latents_mean}, std::pair{"latents_std", &c.latents_std}}) {
    require(std::ssize(*values) == c.latent_channels, Status::data,
            "{}: {} has {} entries, expected {} as z_dim says", file, key, values->size(),
            c.latent_channels);
  }
  for (const double value : c.latents_std) {
    require(value > 0, Status::data, "{}: latents_std has {}, expected numbers above 0", file,
            value);
  }
  return c;
}

}  // namespace reelmesh
