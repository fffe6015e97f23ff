#include "models/wan/folder.hpp"

#include "models/common/parts_match.hpp"

namespace reelmesh {
namespace {

// The timestep at which the second transformer takes over; none without one.
std::optional<double> read_boundary(const ModelPaths& paths, const FlowSettings& settings) {
  const std::filesystem::path file = paths.root / "model_index.json";
  const Config index = Config::read(file);
  require(!index.get_bool("expand_timesteps", false), Status::data,
          "{}: expand_timesteps is true, expected false (Wan 2.2 TI2V is not supported)",
          file.string());
  const std::optional<double> ratio = index.find_double("boundary_ratio", 0, 1);
  const bool two = paths.has(ModelPart::transformer_2);
  require(ratio.has_value() == two, Status::data,
          "{}: found {} transformer_2 and {} boundary_ratio, expected both or neither",
          file.string(), two ? "a" : "no", ratio ? "a" : "no");
  if (!ratio) return std::nullopt;
  return *ratio * static_cast<double>(settings.num_train_timesteps);
}

}  // namespace

WanFolder WanFolder::open(const ModelPaths& paths) {
  WanFolder f;
  f.paths = paths;
  f.transformer = WanConfig::read(Config::read(paths.transformer / "config.json"));
  f.vae = WanVaeConfig::read(Config::read(paths.vae / "config.json"));
  f.text_encoder = T5Config::read(Config::read(paths.text_encoder / "config.json"));
  const Config scheduler = Config::read(paths.scheduler / "scheduler_config.json");
  f.scheduler = read_flow_scheduler(scheduler, class_of_part(paths, "scheduler", scheduler));
  f.boundary = read_boundary(paths, f.scheduler.settings);
  if (f.boundary) {
    const Config second = Config::read(paths.transformer_2 / "config.json");
    require(WanConfig::read(second) == f.transformer, Status::data,
            "{}: differs from that of {}, expected two transformers of one size",
            second.file().string(), paths.transformer.string());
  }
  require_as_in_transformer(paths, "the text encoder has {} channels", f.text_encoder.d_model,
                            f.transformer.text_channels);
  require_as_in_transformer(paths, "the autoencoder has {} latent channels", f.vae.latent_channels,
                            f.transformer.in_channels);
  return f;
}

}  // namespace reelmesh
