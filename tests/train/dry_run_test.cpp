// Dry runs of a training count what its steps take: operations and messages exactly, on every rank
// of every layout, and memory of tensors within a thousandth.
#include <numeric>

#include "models/cogvideox/transformer_backward.hpp"
#include "models/dry_run.hpp"
#include "ops/onednn.hpp"
#include "plan/denoise.hpp"
#include "support/dry_workloads.hpp"
#include "train/replica.hpp"

namespace reelmesh {
namespace {

using test::Reference;
using train::TrainedReplica;

// A checkpoint, with "all." in front if all parameters are trained.
Reference reference_of(const std::string& name) {
  return Reference(name.starts_with("all.") ? name.substr(4) : name);
}

TrainSettings settings_of(const std::string& name, std::int64_t batch) {
  TrainSettings settings;
  if (name.starts_with("all.")) settings.method = TrainMethod::full;
  settings.lora.rank = 4;
  settings.lora.targets = {"to_q", "to_v", "to_out.0", "ff.net.0.proj"};
  settings.batch = batch;
  return settings;
}

Clip training_clip(const CogVideoXConfig& config) {
  const Shape tokens = config.sample_tokens();
  return test::cogvideox_clip(config,
                              {config.patch.frames * tokens[0], config.patch.rows * tokens[1],
                               config.patch.columns * tokens[2]},
                              1, config.max_text_tokens);
}

DenoiseTask task_of(const Clip& clip, const comm::Group& group, const DenoiseLayout& layout) {
  return {.group = group,
          .layout = layout,
          .latents = clip.latents,
          .size = clip.format.size,
          .fps = clip.fps()};
}

TrainingSample sample_of(const DenoiseTask& task, const CogVideoXConfig& config, DType dtype,
                         Device host) {
  const Shape box =
      own_box(task.layout.latents.with_axis(1, config.latent_channels()), task.group).extent;
  const std::int64_t texts = own_box(task.layout.text, task.group).numel();
  return {.timestep = 500,
          .latents = Tensor::zeros(box, DType::float32, host),
          .target = Tensor::zeros(box, DType::float32, host),
          .text = Tensor::zeros({texts, 1, config.text_channels}, dtype, host)};
}

class TrainingDryRuns : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, TrainingDryRuns,
                         ::testing::Values("sincos", "rotary", "v1_5", "all.sincos", "all.v1_5"));

// Steps of three clips on one and on two replicas.
TEST_P(TrainingDryRuns, CountOperationsAndMessages) {
  const Reference reference = reference_of(GetParam());
  const CogVideoXConfig& config = reference.transformer;
  const Checkpoint weights =
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model");
  const comm::Group& world = test::world();
  const Family& family =
      test::family_of<CogVideoX>(test::cogvideox_folder(config, reference.vae, reference.t5));
  const Clip clip = training_clip(config);
  const TrainSettings settings = settings_of(GetParam(), 3);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto runs = DryRuns::of(family, {dtype, ops::compute_dtype(dtype)}, {}, false,
                                  DryTraining{settings, TrainedReplica::make});
    ClipWorkload workload = family.workload(clip, clip.tokens());
    runs->complete(workload, clip, 1);
    for (const int replicas : {1, 2}) {
      const int ranks = world.size() / replicas;
      if (ranks * replicas != world.size()) continue;
      const Replica replica{world.rank() / ranks, replicas};
      const comm::Group group = world.split(replica.index);
      const comm::Group peers = world.split(group.rank());
      const DenoiseLayout layout = choose_layout(workload.denoise, {.ranks = ranks}).layout();
      for (const Residence residence : {Residence::replicated, Residence::sharded}) {
        CogVideoXTrainable model(weights, config, dtype, {.residence = residence, .group = group},
                                 lora_shape(settings));
        const DenoiseTask task = task_of(clip, group, layout);
        TrainedReplica own(model, task, peers, settings);
        own.use_values();
        const trace::Recorder& recorder = trace::recorder();
        const std::int64_t flops = recorder.flops, sent = recorder.bytes_sent;
        for (std::int64_t round = 0; round < settings.batch; round += replicas) {
          const std::int64_t clips = std::min<std::int64_t>(replicas, settings.batch - round);
          Tensor gradient;
          if (replica.index < clips) {
            gradient = own.compute(sample_of(task, config, dtype, {})).gradient;
          }
          own.add(gradient, clips);
        }
        own.update(0, 1, settings.batch);
        StepCost said = workload.denoise.cost(layout, group.rank(), replica).step;
        if (residence == Residence::sharded) {
          said.sent_weights =
              replica.share_of(settings.batch) * runs->sent_weights({}, group.rank(), group.size());
        }
        const std::string what =
            fmt::format("{} replicas, {}, {}", replicas, to_string(layout.mesh), name_of(dtype));
        EXPECT_EQ(said.flops, double(recorder.flops - flops)) << what;
        EXPECT_EQ(said.sent_bytes + said.sent_weights, recorder.bytes_sent - sent) << what;
        EXPECT_GT(said.flops, 0) << what;
      }
    }
  }
}

// What a step takes on one rank, of a model that `model` is.
void step_on_one_rank(CogVideoXTrainable& model, const CogVideoXConfig& config, DType dtype,
                      const comm::Group& group, Device device, const TrainSettings& settings) {
  const Clip clip = training_clip(config);
  const Shape tokens = config.sample_tokens();
  DenoiseLayout layout;
  layout.tokens = Layout::cut(tokens, 0, 1);
  layout.text = Layout::cut({config.max_text_tokens}, 0, 1);
  layout.latents = Layout::cut(clip.latents, 0, 1);
  const DenoiseTask task = task_of(clip, group, layout);
  TrainedReplica own(model, task, group, settings);
  own.use_values();
  const Tensor gradient = own.compute(sample_of(task, config, dtype, device.host())).gradient;
  own.add(gradient, 1);
  own.update(0, 1, 1);
}

TEST_P(TrainingDryRuns, CountMemory) {
  if (test::world().size() > 1) GTEST_SKIP() << "of a rank by itself: on a group of one";
  const Reference reference = reference_of(GetParam());
  const CogVideoXConfig& config = reference.transformer;
  const TrainSettings settings = settings_of(GetParam(), 1);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto make = [&](const Checkpoint& weights) {
      return std::make_unique<CogVideoXTrainable>(weights, config, dtype, WeightPlacement{},
                                                  lora_shape(settings));
    };
    const auto use = [&](const std::unique_ptr<CogVideoXTrainable>& model, const comm::Group& group,
                         Device device) {
      step_on_one_rank(*model, config, dtype, group, device, settings);
    };
    const test::Taken said = test::taken_by_dry_run({dtype, ops::compute_dtype(dtype)}, make, use);
    const auto sum = [](const auto& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    };
    const std::int64_t before = sum(memory_by_purpose(false).present);
    const auto model =
        make(Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model"));
    const std::int64_t weights = sum(memory_by_purpose(false).present) - before;
    forget_memory_peaks();
    const std::int64_t bytes = trace::recorder().memory_bytes;
    use(model, test::world(), {});
    const std::int64_t working = sum(memory_by_purpose(false).at_peak) - before - weights;
    EXPECT_EQ(said.weights, weights) << name_of(dtype);
    EXPECT_EQ(said.memory_bytes, trace::recorder().memory_bytes - bytes) << name_of(dtype);
    EXPECT_NEAR(double(said.working), double(working), 1e-3 * double(working)) << name_of(dtype);
  }
}

}  // namespace
}  // namespace reelmesh
