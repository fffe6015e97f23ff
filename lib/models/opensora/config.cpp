#include "models/opensora/config.hpp"

#include <cmath>

#include "base/number.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t max_value = 1 << 20;

}  // namespace

STDiTConfig STDiTConfig::read(const Config& config) {
  const std::string file = config.file().string();
  const std::string name = require_class(config, {"STDiT", "STDiT3"});
  require(!name.empty(), Status::data, "{}: no _class_name, expected STDiT or STDiT3", file);
  STDiTConfig c;
  c.kind = name == "STDiT" ? Kind::v1 : Kind::v3;
  c.hidden = config.get_int("hidden_size", c.hidden, 8, max_value);
  c.layers = config.get_int("depth", c.layers, 1, 1000);
  c.heads = config.get_int("num_heads", c.heads, 1, 4096);
  c.in_channels = config.get_int("in_channels", c.in_channels, 1, 4096);
  c.text_channels = config.get_int("caption_channels", c.text_channels, 1, max_value);
  c.max_text_tokens = config.get_int("model_max_length", c.kind == Kind::v1 ? 120 : 300, 1, 65536);
  const auto patch = config.get_ints("patch_size", {1, 2, 2}, 1, 64);
  require(patch.size() == 3 && patch[0] == 1, Status::data,
          "{}: patch_size has {} entries and begins with {}, expected 3 entries that begin with 1",
          file, patch.size(), patch.empty() ? 0 : patch[0]);
  c.patch = {1, patch[1], patch[2]};
  const double ratio = config.get_double("mlp_ratio", 4, 1e-3, 64);
  c.mlp_hidden = to_integer(static_cast<double>(c.hidden) * ratio);
  require(c.mlp_hidden >= 1, Status::data,
          "{}: hidden_size is {} and mlp_ratio {}, expected at least 1 channel in the MLP", file,
          c.hidden, ratio);
  only_supported(config, "pred_sigma", config.get_bool("pred_sigma", true), true);
  if (c.kind == Kind::v1) {
    c.space_scale = config.get_double("space_scale", 1, 1e-3, 1e3);
    c.time_scale = config.get_double("time_scale", 1, 1e-3, 1e3);
    only_supported(config, "no_temporal_pos_emb", config.get_bool("no_temporal_pos_emb", false),
                   false);
    c.input_size = config.get_ints("input_size", c.input_size, 1, 10000);
    require(c.input_size.size() == 3, Status::data,
            "{}: input_size has {} entries, expected 3: frames, rows and columns", file,
            c.input_size.size());
  } else {
    c.input_sq_size = config.get_int("input_sq_size", c.input_sq_size, 1, 16384);
    only_supported(config, "qk_norm", config.get_bool("qk_norm", true), true);
    only_supported(config, "skip_y_embedder", config.get_bool("skip_y_embedder", false), false);
  }
  require(c.hidden % c.heads == 0 && c.hidden % 4 == 0 && c.head_channels() % 2 == 0, Status::data,
          "{}: hidden_size is {} with {} heads, expected a multiple of 4 that gives each head an "
          "even number of channels",
          file, c.hidden, c.heads);
  return c;
}

std::optional<CacheCoefficients> known_cache_coefficients(const STDiTConfig& c) {
  if (c.kind != STDiTConfig::Kind::v3 || c.heads != 16 || c.hidden != 1152 || c.layers != 28) {
    return std::nullopt;
  }
  return CacheCoefficients(
      {2.17546007e+02, -1.18329252e+02, 2.68662585e+01, -4.59364272e-02, 4.84426240e-02});
}

}  // namespace reelmesh
