// With the machine files of the repository `auto` takes no longer for a step than what a user could
// ask for, by the same prediction.
#include <gtest/gtest.h>

#include "forecast/choice.hpp"
#include "forecast/prediction.hpp"
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
  std::unique_ptr<const Family> family;
  Clip clip;
};

Model model_of(const std::string& preset) {
  const ModelPreset p = model_preset(preset);
  const auto t5 = T5Config::read(config_of(p.parts.at(ModelPart::text_encoder)));
  if (preset.starts_with("cogvideox")) {
    const auto c = CogVideoXConfig::read(config_of(p.parts.at(ModelPart::transformer)));
    const auto vae = CogVideoXVaeConfig::read(config_of(p.parts.at(ModelPart::vae)));
    const std::int64_t frames = c.latent_frames(c.sample_frames);
    const std::int64_t padded = (frames + c.patch.frames - 1) / c.patch.frames * c.patch.frames;
    return {
        std::make_unique<CogVideoX>(test::cogvideox_folder(c, vae, t5)),
        test::cogvideox_clip(c, {padded, c.sample_height, c.sample_width}, 2, c.max_text_tokens)};
  }
  const auto c = STDiTConfig::read(config_of(p.parts.at(ModelPart::transformer)));
  const auto vae = OpenSoraVaeConfig::read(config_of(p.parts.at(ModelPart::vae)));
  return {std::make_unique<OpenSora>(test::opensora_folder(c, vae, t5)),
          test::dry_clip(vae.temporal ? Shape{15, 30, 53} : Shape{16, 32, 32}, c.in_channels,
                         vae.temporal ? 51 : 16, 2, 1, 120)};
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

std::shared_ptr<const MachineTimes> machine_of(const std::string& name) {
  static const std::vector<std::string> keys = machine_keys();
  const fs::path file = fs::path(REELMESH_SOURCE) / "inputs/machines" / (name + ".cfg");
  return std::make_shared<const MachineTimes>(
      parse_machine(read_config(file, "device.machine", keys), file.string()));
}

std::vector<std::string> machines() {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(fs::path(REELMESH_SOURCE) / "inputs/machines")) {
    names.push_back(file.path().stem().string());
  }
  std::ranges::sort(names);
  return test::tests_are_long() ? names : std::vector<std::string>{"h100", "l40"};
}

std::vector<std::string> models() {
  if (!test::tests_are_long()) return {"cogvideox-5b", "opensora-1.2"};
  return {"cogvideox-2b", "cogvideox-5b", "cogvideox-1.5-5b", "opensora-1.0-16x256x256",
          "opensora-1.2"};
}

std::vector<int> rank_counts() {
  if (!test::tests_are_long()) return {2, 7, 8};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 64};
}

const Precision precision{DType::float16, DType::float16, true};

TEST(FastestLayout, OfAGroupIsThatOfAuto) {
  for (const std::string& name : machines()) {
    const auto times = time_model(machine_of(name), {.of_node = 8});
    for (const std::string& preset : models()) {
      const auto& [family, clip] = model_of(preset);
      const auto runs = DryRuns::of(*family, precision, {}, false, {times, times});
      ClipWorkload workload = family->workload(clip, clip.tokens());
      runs->complete(workload, clip, 1);
      const DenoiseWorkload& w = workload.denoise;
      for (const int ranks : rank_counts()) {
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

// Six ranks, four on a node: ranks 0 and 3 have as many tokens and heads, but only the row of rank
// 0 is on one node.
TEST(FastestLayout, CountsWhatLeavesTheNode) {
  const auto times = time_model(machine_of("h100"), {.of_node = 4});
  const auto& [family, clip] = model_of("cogvideox-5b");
  const auto runs = DryRuns::of(*family, precision, {}, false, {times, times});
  ClipWorkload workload = family->workload(clip, clip.tokens());
  runs->complete(workload, clip, 1);
  LayoutRequest request{.shard = Shard::height, .ranks = 6};
  request.mesh.cfg = 1;
  request.mesh.ring = 2;
  const DenoiseLayout layout = choose_layout(workload.denoise, request).layout();
  ASSERT_EQ(layout.mesh, (Mesh{1, 2, 3}));
  const auto tokens = [&](int rank) {
    return std::pair{layout.tokens.box(rank).numel(), layout.text.box(rank).numel()};
  };
  ASSERT_EQ(tokens(0), tokens(3));
  const auto network = [&](int rank) {
    return runs->denoise(0, layout, rank, {}).step.time.network;
  };
  EXPECT_GT(network(3), 1.2 * network(0));
}

// Some clips of a model on a machine, 8 GPUs on a node.
class GpuJob {
 public:
  GpuJob(const std::string& machine, Model model, int clips) : machine_(machine_of(machine)) {
    planned_.family = std::move(model.family);
    const Family& family = *planned_.family;
    planned_.predicted_by.machine = machine_;
    planned_.predicted_by.dtype = precision.tensors;
    Clip clip = model.clip;
    clip.record.settings.steps = 50;
    clip.sampling.sampler = std::make_shared<const test::StillSampler>(std::vector<double>(50));
    planned_.formats.push_back(clip.format);
    for (int i = 0; i < clips; ++i) {
      planned_.clips.push_back({.index = i, .kind = planned_.kinds.add(clip), .tokens = 200});
    }
    planned_.on_gpu = true;
    const auto times = time_model(machine_, {.of_node = 8});
    const auto runs = DryRuns::of(family, precision, {}, false, {times, times});
    workload_.sizes.push_back(family.workload(clip, clip.tokens()));
    runs->complete(workload_.sizes.back(), clip, 1);
    workload_.text = runs->text_workload(clip.tokens());
    workload_.costs = runs;
    workload_.found = std::make_shared<FoundLayouts>();
  }

  // Of the whole job; none if the request cannot be met.
  std::optional<double> seconds(int ranks, const ParallelRequest& request = {}) const {
    Job job;
    job.parallel = request;
    Conditions conditions;
    conditions.on_gpu = true;
    conditions.machine.ranks = ranks;
    conditions.machine.times = machine_;
    for (int rank = 0; rank < ranks; ++rank) conditions.machine.node_of.push_back(rank / 8);
    const auto batches = form_batches(planned_.clips, planned_.kinds, 1);
    try {
      const Candidate best = Choice(job, planned_, workload_, conditions, batches).best();
      return best.seconds > 0 ? std::optional(best.seconds) : std::nullopt;
    } catch (const Error& error) {
      if (error.status() != Status::unavailable) throw;
      return std::nullopt;
    }
  }

 private:
  std::shared_ptr<const MachineTimes> machine_;
  JobPlan planned_;
  Workload workload_;
};

// What a user may ask for, in words.
std::vector<std::pair<std::string, ParallelRequest>> asked(int ranks) {
  std::vector<std::pair<std::string, ParallelRequest>> all;
  const auto add = [&](const std::string& what, auto change) {
    ParallelRequest request;
    change(request);
    all.emplace_back(what, request);
  };
  for (int replicas = 1; replicas <= ranks; ++replicas) {
    if (replicas > 16 && ranks % replicas != 0) continue;
    add(fmt::format("replicas {}", replicas), [&](ParallelRequest& r) { r.replicas = replicas; });
  }
  for (const Shard shard : {Shard::height, Shard::frames, Shard::grid}) {
    add(fmt::format("shard {}", name_of(shard)), [&](ParallelRequest& r) { r.shard = shard; });
    add(fmt::format("replicas 1, shard {}", name_of(shard)), [&](ParallelRequest& r) {
      r.shard = shard;
      r.replicas = 1;
    });
  }
  for (const int cfg : {1, 2}) {
    for (int ring = 1; ring * cfg <= ranks; ++ring) {
      if (ranks % (cfg * ring) != 0) continue;
      add(fmt::format("cfg {} ring {}", cfg, ring), [&](ParallelRequest& r) {
        r.cfg = cfg;
        r.ring = ring;
        r.ulysses = ranks / cfg / ring;
      });
    }
  }
  for (const WeightsChoice weights :
       {WeightsChoice::replicated, WeightsChoice::sharded, WeightsChoice::host}) {
    add(fmt::format("weights {}", static_cast<int>(weights)),
        [&](ParallelRequest& r) { r.weights = weights; });
  }
  for (const int decode : {1, 2}) {
    add(fmt::format("split, decode {}", decode), [&](ParallelRequest& r) {
      r.mode = Mode::split;
      r.decode = decode;
    });
  }
  return all;
}

// A difference of half a percent does not move weights from the ranks.
TEST(FastestLayout, OfAJobIsThatOfAuto) {
  for (const std::string& name : machines()) {
    const double error = stated_error(*machine_of(name));
    for (const std::string& preset : models()) {
      for (const int clips : {1, 3}) {
        const GpuJob job(name, model_of(preset), clips);
        double shortest = std::numeric_limits<double>::infinity();
        for (const int ranks : rank_counts()) {
          SCOPED_TRACE(fmt::format("{}, {}, {} clips on {} ranks", name, preset, clips, ranks));
          const double chosen = job.seconds(ranks).value();
          for (const auto& [what, request] : asked(ranks)) {
            const auto other = job.seconds(ranks, request);
            if (other) {
              EXPECT_LE(chosen, 1.005 * *other) << what;
            }
          }
          EXPECT_LE(chosen, (1 + error) * shortest) << "more ranks do not make it slower";
          shortest = std::min(shortest, chosen);
        }
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh::app
