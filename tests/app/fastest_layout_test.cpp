// With the machine files of the repository `auto` takes no longer for a step than what a user could
// ask for, by the same prediction.
#include <gtest/gtest.h>

#include "given.hpp"
#include "job/machine_file.hpp"
#include "models/checkpoints/presets.hpp"
#include "plan/denoise.hpp"
#include "plan/machine_times.hpp"
#include "support/dry_workloads.hpp"
#include "support/long.hpp"

namespace reelmesh::app {
namespace {

namespace fs = std::filesystem;

Config config_of(const nlohmann::json& values) {
  return Config::parse(values.dump(), "config.json");
}

struct Model {
  const Family* family;
  Clip clip;
};

Model model_of(const std::string& preset) {
  const ModelPreset p = model_preset(preset);
  const auto t5 = T5Config::read(config_of(p.text_encoder));
  if (preset.starts_with("cogvideox")) {
    const auto c = CogVideoXConfig::read(config_of(p.transformer));
    const auto vae = CogVideoXVaeConfig::read(config_of(p.vae));
    const std::int64_t frames = c.latent_frames(c.sample_frames);
    const std::int64_t padded = (frames + c.patch.frames - 1) / c.patch.frames * c.patch.frames;
    return {
        &test::family_of<CogVideoX>(test::cogvideox_folder(c, vae, t5)),
        test::cogvideox_clip(c, {padded, c.sample_height, c.sample_width}, 2, c.max_text_tokens)};
  }
  const auto c = STDiTConfig::read(config_of(p.transformer));
  const auto vae = OpenSoraVaeConfig::read(config_of(p.vae));
  return {&test::family_of<OpenSora>(test::opensora_folder(c, vae, t5)),
          test::dry_clip({15, 30, 53}, c.in_channels, 51, 2, 1, 120)};
}

// Of the slowest rank.
double step_seconds(const DenoiseWorkload& w, const DenoiseLayout& layout) {
  double work = 0, network = 0;
  for (int rank = 0; rank < layout.mesh.ranks(); ++rank) {
    const Elapsed time = w.costs->denoise(w.size, layout, rank, {}).step.time;
    work = std::max(work, time.computation + time.memory);
    network = std::max(network, time.network);
  }
  return work + network;
}

// All that [parallel] may say of a group of so many ranks.
std::vector<LayoutRequest> explicit_requests(const DenoiseWorkload& w, int ranks) {
  std::vector<LayoutRequest> all;
  for (const Shard shard : {Shard::height, Shard::frames, Shard::grid}) {
    all.push_back({.shard = shard, .ranks = ranks});
  }
  if (!possible_layouts(w, {.ranks = ranks}).front().attention) return all;
  for (const int cfg : {1, 2}) {
    if (ranks % cfg != 0) continue;
    for (int ring = 1; ring <= ranks / cfg; ++ring) {
      if (ranks / cfg % ring != 0) continue;
      LayoutRequest request{.ranks = ranks};
      request.mesh.cfg = cfg;
      request.mesh.ring = ring;
      request.mesh.ulysses = ranks / cfg / ring;
      all.push_back(request);
    }
  }
  return all;
}

TEST(FastestLayout, IsThatOfAuto) {
  const bool all = test::tests_are_long();
  const std::vector<std::string> machines =
      all ? std::vector<std::string>{"a100", "h100", "h200", "l40", "t4"}
          : std::vector<std::string>{"h100", "l40"};
  const std::vector<std::string> models =
      all ? std::vector<std::string>{"cogvideox-2b", "cogvideox-5b", "cogvideox-1.5-5b",
                                     "opensora-1.2"}
          : std::vector<std::string>{"cogvideox-5b", "opensora-1.2"};
  const std::vector<int> counts =
      all ? std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 64}
          : std::vector<int>{7, 8, 16};
  static const std::vector<std::string> keys = machine_keys();
  for (const std::string& name : machines) {
    const fs::path file = fs::path(REELMESH_SOURCE) / "inputs/machines" / (name + ".cfg");
    const auto machine = std::make_shared<const MachineTimes>(
        parse_machine(read_config(file, "device.machine", keys), file.string()));
    const auto times = time_model(machine, {.of_node = 8});
    for (const std::string& preset : models) {
      const auto& [family, clip] = model_of(preset);
      const Precision precision{DType::float16, DType::float16, true};
      const auto runs = DryRuns::of(*family, precision, {}, false, {times, times});
      ClipWorkload workload = family->workload(clip, clip.tokens());
      runs->complete(workload, clip, 1);
      const DenoiseWorkload& w = workload.denoise;
      for (const int ranks : counts) {
        const double chosen = step_seconds(w, choose_layout(w, {.ranks = ranks}).layout());
        for (const LayoutRequest& request : explicit_requests(w, ranks)) {
          const double other = step_seconds(w, choose_layout(w, request).layout());
          EXPECT_LE(chosen, other * (1 + 1e-9))
              << name << ", " << preset << ", " << ranks << " ranks, shard "
              << static_cast<int>(request.shard) << ", cfg " << request.mesh.cfg.value_or(0)
              << ", ring " << request.mesh.ring.value_or(0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh::app
