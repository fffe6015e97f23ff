#include "models/cogvideox/folder.hpp"

#include "models/common/parts_match.hpp"
#include "sampler/sampler_rows.hpp"

namespace reelmesh {

SchedulerConfig read_scheduler(const Config& config) {
  SchedulerConfig s;
  s.beta_start = config.get_double("beta_start", s.beta_start);
  s.beta_end = config.get_double("beta_end", s.beta_end);
  s.beta_schedule = config.get_string("beta_schedule", s.beta_schedule);
  s.has_trained_betas = config.has("trained_betas");
  s.num_train_timesteps = config.get_int("num_train_timesteps", s.num_train_timesteps, 1, 1000000);
  s.prediction_type = config.get_string("prediction_type", s.prediction_type);
  s.rescale_betas_zero_snr = config.get_bool("rescale_betas_zero_snr", s.rescale_betas_zero_snr);
  s.snr_shift_scale = config.get_double("snr_shift_scale", s.snr_shift_scale, 1e-3, 1e3);
  s.set_alpha_to_one = config.get_bool("set_alpha_to_one", s.set_alpha_to_one);
  s.steps_offset = config.get_int("steps_offset", s.steps_offset, 0, 1000000);
  s.timestep_spacing = config.get_string("timestep_spacing", s.timestep_spacing);
  return s;
}

CogVideoXFolder CogVideoXFolder::open(const ModelPaths& paths) {
  CogVideoXFolder f;
  f.paths = paths;
  f.transformer = CogVideoXConfig::read(Config::read(paths.transformer / "config.json"));
  f.vae = CogVideoXVaeConfig::read(Config::read(paths.vae / "config.json"));
  f.text_encoder = T5Config::read(Config::read(paths.text_encoder / "config.json"));
  const Config scheduler = Config::read(paths.scheduler / "scheduler_config.json");
  f.scheduler = read_scheduler(scheduler);
  const NamedClass sampler = class_of_part(paths, "scheduler", scheduler);
  errors_begin_with(scheduler.file().string(), [&] { check(f.scheduler); });
  errors_begin_with(sampler.where,
                    [&] { f.sampler = &sampler_of_class(cogvideox_samplers(), sampler.name); });

  require_as_in_transformer(paths, "the text encoder has {} channels", f.text_encoder.d_model,
                            f.transformer.text_channels);
  require_as_in_transformer(paths, "the autoencoder has {} latent channels", f.vae.latent_channels,
                            f.transformer.latent_channels());
  require_as_in_transformer(paths, "the autoencoder compresses frames {} times",
                            f.vae.temporal_compression, f.transformer.temporal_compression);
  return f;
}

double CogVideoXFolder::default_fps() const { return transformer.linear_patch ? 16 : 8; }

}  // namespace reelmesh
