// The JSON configs of a model: model_index.json, config.json of each part, scheduler_config.json.
// Each input is given to all readers.
#include "models/wan/config.hpp"
#include "fuzz/fuzz.hpp"
#include "models/checkpoints/parts.hpp"
#include "models/clip/config.hpp"
#include "models/cogvideox/folder.hpp"
#include "models/opensora/folder.hpp"
#include "sampler/sampler_rows.hpp"
#include "weights/model_paths.hpp"

using namespace reelmesh;

namespace {

const std::filesystem::path& own_folder() {
  static const std::filesystem::path folder = fuzz::make_folder();
  return folder;
}

ModelPaths paths_with_own_scheduler(const char* model) {
  const std::filesystem::path root = std::filesystem::path(REELMESH_TEST_DATA) / model;
  return {.root = root,
          .transformer = root / "transformer",
          .vae = root / "vae",
          .text_encoder = root / "text_encoder",
          .tokenizer = root / "tokenizer",
          .scheduler = own_folder()};
}

void read_parts(const Config& config) {
  for (const ModelPart part : model_parts) {
    fuzz::refusals_allowed([&] { model_class(part, config); });
  }
  fuzz::refusals_allowed([&] {
    const auto c = T5Config::read(config);
    for (const std::int64_t distance : {std::int64_t{0}, c.num_buckets / 4, std::int64_t{65536}}) {
      for (const std::int64_t relative : {distance, -distance}) {
        const std::int64_t bucket = t5_bucket(relative, c.num_buckets, c.max_distance);
        expect(bucket >= 0 && bucket < c.num_buckets, "bucket {} of {}", bucket, c.num_buckets);
      }
    }
  });
  fuzz::refusals_allowed([&] {
    const auto c = CogVideoXConfig::read(config);
    expect(c.image_channels() == 0 || c.image_channels() == c.latent_channels(), "{} channels",
           c.image_channels());
    c.check_size({480, 720, 49}, 0);
  });
  fuzz::refusals_allowed([&] { CogVideoXVaeConfig::read(config); });
  fuzz::refusals_allowed([&] {
    const auto c = WanConfig::read(config);
    expect(c.image_channels() == 0 || c.image_channels() == c.out_channels + c.mask_channels,
           "{} channels", c.image_channels());
  });
  fuzz::refusals_allowed([&] { expect(ClipVisionConfig::read(config).rows() > 1, "no patches"); });
  fuzz::refusals_allowed([&] {
    const VisionPixels pixels = read_vision_pixels(config);
    expect(pixels.size <= pixels.edge, "{} of {}", pixels.size, pixels.edge);
  });
  fuzz::refusals_allowed([&] { WanVaeConfig::read(config).channels(3); });
  fuzz::refusals_allowed([&] { STDiTConfig::read(config).head_channels(); });
  fuzz::refusals_allowed([&] { OpenSoraVaeConfig::read(config).latent_frames(51); });
}

void read_schedulers(const Config& config) {
  static const ModelPaths opensora = paths_with_own_scheduler("opensora/v1_0");
  constexpr int steps = 5;
  fuzz::refusals_allowed([&] {
    const SchedulerConfig scheduler = read_scheduler(config);
    check(scheduler);
    sampler_of_class(cogvideox_samplers(), class_named_in(config))
        .make(NoiseSchedule(scheduler, steps));
  });
  fuzz::refusals_allowed([&] {
    const auto folder = OpenSoraFolder::open(opensora);
    folder.default_size();
    folder.default_guidance();
    if (const auto* iddpm = std::get_if<IddpmConfig>(&folder.scheduler)) {
      Iddpm(*iddpm, static_cast<int>(folder.default_steps()));
    } else {
      RectifiedFlow(std::get<RectifiedFlowConfig>(folder.scheduler),
                    static_cast<int>(folder.default_steps()), folder.default_size());
    }
  });
}

}  // namespace

FUZZ_TARGET(config) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::refusals_allowed([&] {
    const Config config = Config::parse(text, "config.json");
    fuzz::write_file(own_folder() / "scheduler_config.json", text);
    read_parts(config);
    read_schedulers(config);
    read_model_index(own_folder() / "scheduler_config.json");
  });
  return 0;
}
