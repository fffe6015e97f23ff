#include "models/wan/folder.hpp"

#include "models/common/parts_match.hpp"

namespace reelmesh {
namespace {

// image_dim, not the class of the pipeline, decides whether there is an image encoder.
WanFolder::Vision open_vision(const ModelPaths& paths, const WanConfig& transformer) {
  paths.need(ModelPart::image_encoder);
  WanFolder::Vision vision{
      ClipVisionConfig::read(Config::read(paths.image_encoder / "config.json")),
      read_vision_pixels(Config::read(paths.image_processor / "preprocessor_config.json"))};
  const ClipVisionConfig& encoder = vision.encoder;
  require_as_in_transformer(paths, "the image encoder has {} channels", encoder.channels,
                            transformer.vision_channels);
  require(vision.pixels.size == encoder.image_size, Status::data,
          "{}: crop_size is {}, expected {}, image_size of {}",
          (paths.image_processor / "preprocessor_config.json").string(), vision.pixels.size,
          encoder.image_size, (paths.image_encoder / "config.json").string());
  if (transformer.ends_with_image()) {
    require_as_in_transformer(paths, "the image encoder has {} rows of two images",
                              2 * encoder.rows(), transformer.vision_positions);
  }
  return vision;
}

// The timestep at which the second transformer takes over; none without one.
std::optional<double> read_boundary(const Config& index, const ModelPaths& paths,
                                    const FlowSettings& settings) {
  const std::optional<double> ratio = index.find_double("boundary_ratio", 0, 1);
  const bool two = paths.has(ModelPart::transformer_2);
  require(ratio.has_value() == two, Status::data,
          "{}: found {} transformer_2 and {} boundary_ratio, expected both or neither",
          index.file().string(), two ? "a" : "no", ratio ? "a" : "no");
  if (!ratio) return std::nullopt;
  return *ratio * static_cast<double>(settings.num_train_timesteps);
}

}  // namespace

WanFolder WanFolder::open(const ModelPaths& paths) {
  WanFolder f;
  f.paths = paths;
  const Config index = Config::read(paths.root / "model_index.json");
  f.expand_timesteps = index.get_bool("expand_timesteps", false);
  f.transformer = WanConfig::read(Config::read(paths.transformer / "config.json"));
  f.vae = WanVaeConfig::read(Config::read(paths.vae / "config.json"));
  f.text_encoder = T5Config::read(Config::read(paths.text_encoder / "config.json"));
  const Config scheduler = Config::read(paths.scheduler / "scheduler_config.json");
  f.scheduler = read_flow_scheduler(scheduler, class_of_part(paths, "scheduler", scheduler));
  f.boundary = read_boundary(index, paths, f.scheduler.settings);
  if (f.boundary) {
    const Config second = Config::read(paths.transformer_2 / "config.json");
    require(WanConfig::read(second) == f.transformer, Status::data,
            "{}: differs from that of {}, expected two transformers of one size",
            second.file().string(), paths.transformer.string());
  }
  require_as_in_transformer(paths, "the text encoder has {} channels", f.text_encoder.d_model,
                            f.transformer.text_channels);
  require_as_in_transformer(paths, "the autoencoder has {} latent channels", f.vae.latent_channels,
                            f.transformer.out_channels);
  if (f.transformer.vision_channels > 0) f.vision = open_vision(paths, f.transformer);
  return f;
}

}  // namespace reelmesh
