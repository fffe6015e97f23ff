#include "models/clip/config.hpp"

#include <algorithm>

namespace reelmesh {

ClipVisionConfig ClipVisionConfig::read(const Config& config) {
  constexpr std::int64_t max_value = 1 << 16;
  require_class(config, {"CLIPVisionModel", "CLIPVisionModelWithProjection", "clip_vision_model"});
  ClipVisionConfig c;
  c.channels = config.get_int("hidden_size", c.channels, 1, max_value);
  c.hidden_channels = config.get_int("intermediate_size", c.hidden_channels, 1, max_value);
  c.layers = config.get_int("num_hidden_layers", c.layers, 2, 1000);
  c.heads = config.get_int("num_attention_heads", c.heads, 1, 4096);
  c.image_size = config.get_int("image_size", c.image_size, 1, 4096);
  c.patch_size = config.get_int("patch_size", c.patch_size, 1, 4096);
  c.norm_eps = config.get_double("layer_norm_eps", c.norm_eps, 1e-12, 1);
  const std::string file = config.file().string();
  only_supported(config, "num_channels", config.get_int("num_channels", 3), std::int64_t{3});
  only_supported<std::string>(config, "hidden_act", config.get_string("hidden_act", "quick_gelu"),
                              "gelu");
  require(c.channels % c.heads == 0, Status::data,
          "{}: hidden_size is {}, expected a multiple of {}, num_attention_heads", file, c.channels,
          c.heads);
  require(c.image_size % c.patch_size == 0, Status::data,
          "{}: image_size is {}, expected a multiple of {}, patch_size", file, c.image_size,
          c.patch_size);
  return c;
}

namespace {

// A square of pixels, given as a number or as {"height": …, "width": …}.
std::int64_t read_square(const Config& config, const std::string& key, std::int64_t fallback) {
  constexpr std::int64_t max = 4096;
  if (!config.has(key)) return fallback;
  const Config object = config.get_object(key);
  const std::int64_t height = object.get_int("height", fallback, 1, max);
  require(object.get_int("width", fallback, 1, max) == height, Status::data,
          "{}: {} has another width than height, expected a square", config.file().string(), key);
  return height;
}

std::array<float, 3> read_channels(const Config& config, const std::string& key,
                                   const std::array<float, 3>& fallback) {
  const std::vector<double> found = config.get_doubles(key, {fallback.begin(), fallback.end()});
  require(found.size() == 3, Status::data, "{}: {} has {} entries, expected 3",
          config.file().string(), key, found.size());
  std::array<float, 3> values{};
  std::ranges::transform(found, values.begin(), [](double x) { return static_cast<float>(x); });
  return values;
}

}  // namespace

VisionPixels read_vision_pixels(const Config& config) {
  VisionPixels pixels;
  const std::string file = config.file().string();
  for (const char* key : {"do_resize", "do_center_crop", "do_rescale", "do_normalize"}) {
    only_supported(config, key, config.get_bool(key, true), true);
  }
  constexpr std::int64_t bicubic = 3;  // of Pillow
  only_supported(config, "resample", config.get_int("resample", bicubic), bicubic);
  if (config.has("size")) {
    pixels.edge = config.get_object("size").get_int("shortest_edge", pixels.edge, 1, 4096);
  }
  pixels.size = read_square(config, "crop_size", pixels.size);
  require(pixels.size <= pixels.edge, Status::data,
          "{}: crop_size is {}, expected at most {}, the shortest_edge of size", file, pixels.size,
          pixels.edge);
  pixels.factor = config.get_double("rescale_factor", pixels.factor, 1e-6, 1);
  pixels.mean = read_channels(config, "image_mean", {0.48145466F, 0.4578275F, 0.40821073F});
  pixels.deviation = read_channels(config, "image_std", {0.26862954F, 0.26130258F, 0.27577711F});
  for (const float deviation : pixels.deviation) {
    require(deviation > 0, Status::data, "{}: image_std has {}, expected numbers above 0", file,
            deviation);
  }
  return pixels;
}

}  // namespace reelmesh
