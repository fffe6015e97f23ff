#include "forecast/describe.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "plan/workloads.hpp"
#include "sampler/cogvideox.hpp"
#include "support/dry_workloads.hpp"
#include "support/released_scheduler.hpp"

namespace reelmesh {
namespace {

using ::testing::HasSubstr, ::testing::StartsWith;

constexpr std::int64_t mib = std::int64_t{1} << 20;

// Each rank needs as many MiB as its stage says.
std::shared_ptr<test::ToyCosts> costs() {
  const auto made = std::make_shared<test::ToyCosts>();
  made->of_text = [](const DeviceMap::Stage& stage) {
    return StageMemory{.weights = (stage.last - stage.first) * 8 * mib};
  };
  made->of_denoising = [](const DenoiseLayout&, int rank) {
    return DenoiseCost{{.weights = (100 + rank) * mib}, {}};
  };
  made->of_decoding = [](const DecodeLayout&, int) { return StageMemory{.weights = 10 * mib}; };
  return made;
}

// Clips of `frames` latent frames of 8 x 8 latents, each a token, and as many frames of video.
Workload workload(const std::vector<std::int64_t>& frames) {
  Workload w{.costs = costs(), .text = {.layers = 4}};
  for (const std::int64_t n : frames) {
    ClipWorkload clip;
    clip.denoise = {.latents = {n, 8, 8},
                    .patch = {1, 1, 1},
                    .text_tokens = 6,
                    .heads = 4,
                    .head_channels = 16,
                    .costs = w.costs,
                    .size = w.sizes.size()};
    clip.decode = {.latents = {n, 8, 8}, .frames = n, .group_latents = n, .group_frames = n};
    w.sizes.push_back(std::move(clip));
  }
  return w;
}

JobPlan planned_job(const std::vector<std::int64_t>& frames, int ranks,
                    const ParallelRequest& request, std::vector<std::int64_t> limits = {}) {
  JobPlan job;
  job.family = std::make_unique<CogVideoX>(test::cogvideox_folder({}, {}, {}));
  PlanMachine machine;
  machine.ranks = ranks;
  machine.memory_limits.values = std::move(limits);
  for (const std::int64_t n : frames) {
    job.formats.push_back({.size = {.height = 64, .width = 64, .frames = n}, .branches = 2});
    Clip clip;
    clip.format = job.formats.back();
    clip.video = {n, 64, 64};
    clip.record.settings = {.height = 64, .width = 64, .frames = n, .steps = 20};
    job.clips.push_back({.index = int(job.clips.size()), .kind = job.kinds.add(clip)});
  }
  job.plan = make_plan(workload(frames), machine, request);
  return job;
}

// The table of stages, which follows an empty line.
std::string stages(const JobPlan& job) {
  const std::string text = plan_text(describe(job, {}), Detail::summary);
  return text.substr(text.find("\n\n") + 2);
}

TEST(Describe, HasARowForEachStage) {
  EXPECT_EQ(stages(planned_job({3}, 4, {})),
            "stage    ranks  divided by              largest share  largest memory\n"
            "---------------------------------------------------------------------\n"
            "text     0-3    layers on 4 ranks       1 of 4 layers       64.00 MiB\n"
            "denoise  0-3    cfg 2 x ulysses 2    96 of 192 tokens      169.00 MiB\n"
            "decode   0-3    rows 4             25 % of the pixels      169.00 MiB\n");
}

TEST(Describe, NamesGroupsFormatsAndLimits) {
  ParallelRequest request;
  request.mode = Mode::split;
  request.replicas = 2;
  EXPECT_EQ(stages(planned_job({3, 5}, 6, request, std::vector<std::int64_t>(6, 512 * mib))),
            "stage    clips    ranks           divided by        largest share  largest memory     "
            "  limit\n"
            "--------------------------------------------------------------------------------------"
            "-------\n"
            "text              0               whole             4 of 4 layers       88.00 MiB  "
            "512.00 MiB\n"
            "denoise  3x64x64  1-4 (2 groups)  cfg 2         192 of 192 tokens      157.00 MiB  "
            "512.00 MiB\n"
            "denoise  5x64x64  1-4 (2 groups)  cfg 2         320 of 320 tokens      157.00 MiB  "
            "512.00 MiB\n"
            "decode   3x64x64  5               whole       100 % of the pixels       66.00 MiB  "
            "512.00 MiB\n"
            "decode   5x64x64  5               whole       100 % of the pixels       66.00 MiB  "
            "512.00 MiB\n");
}

TEST(Describe, ShowsTheFirstFormatsOnly) {
  EXPECT_THAT(stages(planned_job({1, 2, 3, 4, 5, 6}, 2, {})),
              HasSubstr("and 2 more formats of clips\n"));
}

TEST(Describe, SaysWhereTheJobRuns) {
  JobPlan job = planned_job({3}, 2, {});
  EXPECT_THAT(
      plan_text(describe(job, {})),
      StartsWith("2 ranks on 1 host, CPU with 1 thread each; phased: all ranks do each stage "
                 "in turn\n"));
  job.products = "bfloat16 by AMX";
  EXPECT_THAT(plan_text(describe(job, {})),
              HasSubstr(" each, products in bfloat16 by AMX; phased"));
  job.on_gpu = true;
  EXPECT_EQ(describe(job, {}).at("device"), "GPU");
}

TEST(Describe, HasTheTextThatPeopleRead) {
  const nlohmann::json described = describe(planned_job({3, 5}, 4, {}), {});
  EXPECT_EQ(described.at("description"), plan_text(described));
  EXPECT_EQ(described.at("stages").size(), 5U);
  EXPECT_EQ(described.at("stages").at(2).at("clips"), "5x64x64");
  EXPECT_EQ(described.at("clip").at("frames"), 3);
}

TEST(Describe, DescribesClips) {
  const auto described = [](const JobPlan& job) { return clips_text(job.clips, job.kinds); };
  const JobPlan one = planned_job({3}, 1, {});
  EXPECT_EQ(described(one), "1 clip of 3x64x64 (frames x height x width), 20 steps");
  EXPECT_EQ(described(planned_job({3, 5}, 1, {})), "2 clips of several sizes, 20 steps");
  Clip shorter = one.kinds[0];
  shorter.video = {1, 64, 64};
  ClipKinds rounded;
  rounded.add(shorter);
  EXPECT_EQ(clips_text(one.clips, rounded),
            "1 clip of 1x64x64 (frames x height x width; asked for: 3x64x64), 20 steps");
  Clip from_video = one.kinds[0];
  from_video.record.settings.strength = 0.8;
  from_video.sampling.sampler =
      std::make_shared<const DdimSampler>(NoiseSchedule(released_scheduler(), 20, 4));
  ClipKinds kinds;
  kinds.add(from_video);
  EXPECT_EQ(clips_text(one.clips, kinds),
            "1 clip of 3x64x64 (frames x height x width), 20 steps (16 of them computed)");
}

}  // namespace
}  // namespace reelmesh
