#include "models/wan/folder.hpp"

#include "models/common/parts_match.hpp"

namespace reelmesh {
namespace {

// Models of two transformers, and timesteps of tokens, are Wan 2.2.
void refuse_wan_2_2(const ModelPaths& paths) {
  const std::filesystem::path file = paths.root / "model_index.json";
  const Config index = Config::read(file);
  const auto refuse = [&](const char* key) {
    fail(Status::data, "{}: {} is given, expected a model of Wan 2.1 (Wan 2.2 is not supported)",
         file.string(), key);
  };
  if (read_model_index(file).parts.contains("transformer_2")) refuse("transformer_2");
  if (index.has("boundary_ratio")) refuse("boundary_ratio");
  if (index.get_bool("expand_timesteps", false)) refuse("expand_timesteps");
}

}  // namespace

WanFolder WanFolder::open(const ModelPaths& paths) {
  refuse_wan_2_2(paths);
  WanFolder f;
  f.paths = paths;
  f.transformer = WanConfig::read(Config::read(paths.transformer / "config.json"));
  f.vae = WanVaeConfig::read(Config::read(paths.vae / "config.json"));
  f.text_encoder = T5Config::read(Config::read(paths.text_encoder / "config.json"));
  const Config scheduler = Config::read(paths.scheduler / "scheduler_config.json");
  f.scheduler = read_flow_scheduler(scheduler, class_of_part(paths, "scheduler", scheduler));
  require_as_in_transformer(paths, "the text encoder has {} channels", f.text_encoder.d_model,
                            f.transformer.text_channels);
  require_as_in_transformer(paths, "the autoencoder has {} latent channels", f.vae.latent_channels,
                            f.transformer.in_channels);
  return f;
}

}  // namespace reelmesh
