#include "models/opensora/folder.hpp"

#include "models/common/parts_match.hpp"

namespace reelmesh {
namespace {

std::variant<IddpmConfig, RectifiedFlowConfig> read_open_sora_scheduler(const Config& config,
                                                                        const NamedClass& named) {
  const auto checked = [&](auto scheduler) {
    scheduler.num_sampling_steps =
        config.get_int("num_sampling_steps", scheduler.num_sampling_steps, 1, 1000000);
    scheduler.cfg_scale = config.get_double("cfg_scale", scheduler.cfg_scale, 0, 1000);
    errors_begin_with(config.file().string(), [&] { check(scheduler); });
    return scheduler;
  };
  if (named.name == IddpmConfig::class_name) return checked(IddpmConfig{});
  require(named.name == RectifiedFlowConfig::class_name, Status::data,
          "{}: found the class {}, expected {} or {}", named.where, named.name,
          IddpmConfig::class_name, RectifiedFlowConfig::class_name);
  RectifiedFlowConfig flow;
  flow.num_timesteps = config.get_int("num_timesteps", flow.num_timesteps, 1, 1000000);
  flow.use_discrete_timesteps =
      config.get_bool("use_discrete_timesteps", flow.use_discrete_timesteps);
  flow.use_timestep_transform =
      config.get_bool("use_timestep_transform", flow.use_timestep_transform);
  return checked(flow);
}

}  // namespace

OpenSoraFolder OpenSoraFolder::open(const ModelPaths& paths) {
  OpenSoraFolder f;
  f.paths = paths;
  f.transformer = STDiTConfig::read(Config::read(paths.transformer / "config.json"));
  f.vae = OpenSoraVaeConfig::read(Config::read(paths.vae / "config.json"));
  f.text_encoder = T5Config::read(Config::read(paths.text_encoder / "config.json"));
  const Config scheduler = Config::read(paths.scheduler / "scheduler_config.json");
  f.scheduler = read_open_sora_scheduler(scheduler, class_of_part(paths, "scheduler", scheduler));

  require_as_in_transformer(paths, "the text encoder has {} channels", f.text_encoder.d_model,
                            f.transformer.text_channels);
  require_as_in_transformer(paths, "the autoencoder has {} latent channels",
                            f.vae.image.latent_channels, f.transformer.in_channels);
  return f;
}

std::string_view OpenSoraFolder::scheduler_name() const {
  return std::visit([](const auto& s) { return s.class_name; }, scheduler);
}

std::int64_t OpenSoraFolder::default_steps() const {
  return std::visit([](const auto& s) { return s.num_sampling_steps; }, scheduler);
}

double OpenSoraFolder::default_guidance() const {
  return std::visit([](const auto& s) { return s.cfg_scale; }, scheduler);
}

VideoSize OpenSoraFolder::default_size() const {
  if (transformer.kind == STDiTConfig::Kind::v3) return {240, 426, 51};
  const Shape& latents = transformer.input_size;
  const std::int64_t pixels = vae.image.compression();
  return {latents[1] * pixels, latents[2] * pixels, latents[0]};
}

double OpenSoraFolder::default_fps() const {
  return transformer.kind == STDiTConfig::Kind::v3 ? 24 : 8 / transformer.time_scale;
}

}  // namespace reelmesh
