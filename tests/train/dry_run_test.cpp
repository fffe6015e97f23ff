// Dry runs of a training count what its steps take: operations and messages exactly, on every rank
// of every layout, and memory of tensors within a thousandth.
#include <numeric>

#include "models/dry_run.hpp"
#include "models/opensora/reference.hpp"
#include "models/wan/reference.hpp"
#include "ops/onednn.hpp"
#include "plan/denoise.hpp"
#include "support/constant_machine.hpp"
#include "support/dry_workloads.hpp"
#include "train/replica.hpp"

namespace reelmesh {
namespace {

using train::TrainedReplica;

// A model that is trained, with the encoder of its images if it takes any.
struct Parts {
  std::unique_ptr<Trainable> model;
  std::unique_ptr<const Encoder> encoder;

  ImageEncoding images() const { return {encoder.get()}; }
};

// A model and a clip that it is trained on.
struct CountedCase {
  const Family* family;
  std::filesystem::path checkpoint;
  Clip clip;

  Checkpoint weights(const char* part) const {
    return Checkpoint::open(checkpoint / part, "diffusion_pytorch_model");
  }
  // weights_of(part): its weights
  template <class WeightsOf>
  Parts parts(const WeightsOf& weights_of, DType dtype, const WeightPlacement& placement,
              const TrainSettings& settings) const {
    Parts parts;
    parts.model =
        family->trainable(weights_of("transformer"), dtype, placement, training_mode(settings));
    if (family->image_scale()) parts.encoder = family->encoder(weights_of("vae"), dtype);
    return parts;
  }
};

// Of this kind: "float32", "image".
CountedCase counted_case_of_wan(const std::string& kind) {
  const test::WanReference reference(kind);
  const WanConfig& config = reference.transformer;
  const Shape latents{5, 6, 10};
  T5Config text;
  text.d_model = config.text_channels;
  CountedCase counted{
      test::family_of<Wan>(test::wan_folder(config, reference.vae, text)), reference.folder,
      test::dry_clip(latents, config.out_channels, WanVaeConfig::decoded_frames(latents[0]), 1, 1,
                     WanConfig::text_tokens)};
  if (config.takes_image()) counted.clip.vision = {5, config.vision_channels};
  return counted;
}

// A checkpoint, with "all." in front if all parameters of CogVideoX or Wan are trained.
CountedCase counted_case_of(const std::string& name) {
  if (name.ends_with("wan")) return counted_case_of_wan("float32");
  if (name.ends_with("wan_image")) return counted_case_of_wan("image");
  const std::string open_sora = "opensora.";
  if (name.starts_with(open_sora)) {
    const test::OpenSoraReference reference(name.substr(open_sora.size()));
    const STDiTConfig& config = reference.transformer;
    const Shape latents{16, 6, 10};
    return {test::family_of<OpenSora>(test::opensora_folder(config, {}, reference.t5)),
            reference.folder,
            test::dry_clip(latents, config.in_channels, latents[0], STDiT::branches, 1, 20)};
  }
  const test::Reference reference(name.starts_with("all.") ? name.substr(4) : name);
  const CogVideoXConfig& config = reference.transformer;
  const Shape tokens = config.sample_tokens();
  return {test::family_of<CogVideoX>(test::cogvideox_folder(config, reference.vae, reference.t5)),
          reference.folder,
          test::cogvideox_clip(config,
                               {config.patch.frames * tokens[0], config.patch.rows * tokens[1],
                                config.patch.columns * tokens[2]},
                               1, config.max_text_tokens)};
}

TrainSettings settings_of(const std::string& name, std::int64_t batch) {
  TrainSettings settings;
  if (name.starts_with("all.") || name.starts_with("opensora.")) {
    settings.method = &train_method_named("full");
  }
  settings.lora.rank = 4;
  settings.lora.targets = {"to_q", "to_v", "to_out.0", "ff.net.0.proj"};
  settings.lora.rank_pattern = {{"to_v", 9}, {"transformer_blocks.0.ff.net.0.proj", 2}};
  if (name.starts_with("wan")) {
    settings.lora.targets.back() = "ffn.net.0.proj";
    settings.lora.rank_pattern.back() = {"blocks.0.ffn.net.0.proj", 2};
  }
  if (name == "wan_image") settings.lora.targets.push_back("add_v_proj");
  settings.batch = batch;
  return settings;
}

DenoiseTask task_of(const Clip& clip, const comm::Group& group, const DenoiseLayout& layout) {
  return {.group = group,
          .layout = layout,
          .latents = clip.latents,
          .size = clip.format.size,
          .fps = clip.fps(),
          .image_rows = clip.image_rows()};
}

TrainingSample sample_of(const TrainedReplica& own, const DenoiseTask& task, const CountedCase& c,
                         DType dtype, Device host) {
  const Shape box =
      own_box(task.layout.latents.with_axis(1, c.clip.latent_channels), task.group).extent;
  const std::int64_t texts = own_box(task.layout.text, task.group).numel();
  TrainingSample sample{
      .timestep = 500,
      .latents = Tensor::zeros(box, DType::float32, host),
      .target = Tensor::zeros(box, DType::float32, host),
      .text = Tensor::zeros({texts, 1, c.family->text_encoder().d_model}, dtype, host),
      .clean = Tensor::zeros(box, DType::float32, host)};
  if (c.family->encodes_image_once()) sample.image = sample.clean;
  if (!c.clip.vision.empty()) sample.vision = Tensor::zeros(c.clip.vision, dtype, host);
  if (!c.family->image_scale()) return sample;
  const Shape& pixels = own_box(own.image_pixels(), task.group).extent;
  sample.image =
      own.encode_image(Tensor::zeros(pixels, DType::float32, host),
                       [](const Box&, std::span<float> noise) { std::ranges::fill(noise, 0.0F); });
  return sample;
}

class TrainingDryRuns : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, TrainingDryRuns,
                         ::testing::Values("sincos", "rotary", "v1_5", "i2v", "all.sincos",
                                           "all.v1_5", "all.i2v_1_5"));
INSTANTIATE_TEST_SUITE_P(OpenSora, TrainingDryRuns,
                         ::testing::Values("opensora.v1_0", "opensora.v1_2"));
INSTANTIATE_TEST_SUITE_P(Wan, TrainingDryRuns,
                         ::testing::Values("wan", "all.wan", "wan_image", "all.wan_image"));

// Steps of three clips on one and on two replicas.
TEST_P(TrainingDryRuns, CountOperationsAndMessages) {
  const CountedCase c = counted_case_of(GetParam());
  const Family* family = c.family;
  const Clip& clip = c.clip;
  const comm::Group& world = test::world();
  TrainSettings settings = settings_of(GetParam(), 3);
  for (const auto& [dtype, recomputes_blocks] : std::initializer_list<std::pair<DType, bool>>{
           {DType::float32, true}, {DType::float32, false}, {DType::bfloat16, true}}) {
    settings.recomputes_blocks = recomputes_blocks;
    const auto runs = DryRuns::of(*family, {dtype, ops::compute_dtype(dtype)}, {}, false, {},
                                  DryTraining{settings, TrainedReplica::make});
    ClipWorkload workload = family->workload(clip, clip.tokens());
    runs->complete(workload, clip, 1);
    for (const int replicas : {1, 2}) {
      const int ranks = world.size() / replicas;
      if (ranks * replicas != world.size()) continue;
      const Replica replica{world.rank() / ranks, replicas};
      const comm::Group group = world.split(replica.index);
      const comm::Group peers = world.split(group.rank());
      const DenoiseLayout layout = choose_layout(workload.denoise, {.ranks = ranks}).layout();
      for (const Residence residence : {Residence::replicated, Residence::sharded}) {
        const Parts parts = c.parts([&](const char* part) { return c.weights(part); }, dtype,
                                    {.residence = residence, .group = group}, settings);
        const DenoiseTask task = task_of(clip, group, layout);
        TrainedReplica own(*parts.model, task, peers, settings, parts.images());
        own.use_values();
        const trace::Recorder& recorder = trace::recorder();
        const std::int64_t flops = recorder.flops, sent = recorder.bytes_sent;
        for (std::int64_t round = 0; round < settings.batch; round += replicas) {
          const std::int64_t clips = std::min<std::int64_t>(replicas, settings.batch - round);
          Tensor gradient;
          if (replica.index < clips) {
            gradient = own.compute(sample_of(own, task, c, dtype, {})).gradient;
          }
          own.add(gradient, clips);
        }
        own.update(0, 1, settings.batch);
        StepCost said = runs->denoise(0, layout, group.rank(), replica).step;
        if (residence == Residence::sharded) {
          said.sent_weights =
              replica.share_of(settings.batch) * runs->sent_weights({}, group.rank(), group.size());
        }
        const std::string what =
            fmt::format("{} replicas, {}, {}, {}", replicas, to_string(layout.mesh), name_of(dtype),
                        recomputes_blocks ? "blocks computed again" : "blocks kept");
        EXPECT_EQ(said.flops, double(recorder.flops - flops)) << what;
        EXPECT_EQ(said.sent_bytes + said.sent_weights, recorder.bytes_sent - sent) << what;
        EXPECT_GT(said.flops, 0) << what;
      }
    }
  }
}

// Gradients and what the optimizer keeps are divided among replicas, however many there are.
TEST(TrainingReplicas, TakeAndSendNoMoreWhereThereAreMore) {
  constexpr std::int64_t batch = 512;
  const CountedCase c = counted_case_of("all.sincos");
  const auto runs =
      DryRuns::of(*c.family, {DType::float32, DType::float32}, {}, false, {},
                  DryTraining{settings_of("all.sincos", batch), TrainedReplica::make});
  ClipWorkload workload = c.family->workload(c.clip, c.clip.tokens());
  runs->complete(workload, c.clip, 1);
  const DenoiseLayout layout = choose_layout(workload.denoise, {.ranks = 1}).layout();
  const auto cost = [&](int replicas) { return runs->denoise(0, layout, 0, {0, replicas}); };
  const DenoiseCost two = cost(2);
  // Half a gradient for each of 256 clips, and half of the new values.
  const double gradient = static_cast<double>(two.step.sent_bytes) / (batch / 4 + 0.5);
  for (const int replicas : {8, 64, 512}) {
    const DenoiseCost more = cost(replicas);
    const std::int64_t rounds = batch / replicas;
    // All but its own part of one gradient arrives, not one for each replica.
    EXPECT_LT(static_cast<double>(more.memory.total() - two.memory.total()), gradient) << replicas;
    EXPECT_LE(static_cast<double>(more.step.sent_bytes), static_cast<double>(rounds + 1) * gradient)
        << replicas;
  }
}

// In proportion to the bytes that it reads and writes.
TEST_P(TrainingDryRuns, CountTheTimeOfTheOptimizer) {
  const CountedCase c = counted_case_of(GetParam());
  const auto machine = std::make_shared<const MachineTimes>(test::constant_machine(1e9));
  const auto seconds = [&](const char* optimizer, std::optional<double> ema) {
    TrainSettings settings = settings_of(GetParam(), 1);
    settings.optimizer = &ops::optimizer_named(optimizer);
    settings.ema = ema;
    const auto times = time_model(machine, {});
    const auto runs = DryRuns::of(*c.family, {DType::float32, DType::float32}, {}, false,
                                  {times, times}, DryTraining{settings, TrainedReplica::make});
    ClipWorkload workload = c.family->workload(c.clip, c.clip.tokens());
    runs->complete(workload, c.clip, 1);
    const DenoiseLayout layout = choose_layout(workload.denoise, {.ranks = 1}).layout();
    return runs->denoise(0, layout, 0, {}).step.time.total();
  };
  const double plain = seconds("sgd", {}), adam = seconds("adamw", {});
  EXPECT_GT(adam, plain);
  const double mean = seconds("adamw", 0.9);
  EXPECT_NEAR(mean - adam, 0.75 * (adam - plain), 1e-6 * adam) << "three values beside four";
}

// All weights of CogVideoX-5b: values, gradients and what the optimizer keeps are on the host, in
// float32.
TEST(TrainingDryRun, CountsTheHostOfAGpu) {
  if (test::world().rank() > 0) GTEST_SKIP() << "one rank is enough";
  CogVideoXConfig config;
  config.heads = 48;
  config.layers = 42;
  config.rotary = true;
  T5Config text;
  text.d_model = config.text_channels;
  const Family& family = *test::family_of<CogVideoX>(test::cogvideox_folder(config, {}, text));
  const Clip clip = test::cogvideox_clip(config, {13, 60, 90}, 1, 226);
  const auto memory = [&](const char* optimizer, std::optional<double> ema) {
    TrainSettings settings;
    settings.method = &train_method_named("full");
    settings.optimizer = &ops::optimizer_named(optimizer);
    settings.ema = ema;
    settings.batch = 1;
    const auto runs = DryRuns::of(family, {DType::bfloat16, DType::bfloat16, true}, {}, false, {},
                                  DryTraining{settings, TrainedReplica::make});
    ClipWorkload workload = family.workload(clip, clip.tokens());
    runs->complete(workload, clip, 1);
    return runs->denoise(0, choose_layout(workload.denoise, {.ranks = 1}).layout(), 0, {}).memory;
  };
  constexpr double array = 89e9 / 4;
  const StageMemory plain = memory("sgd", {}), adam = memory("adamw", {});
  EXPECT_NEAR(double(plain.host), 2 * array, 0.03 * array);
  EXPECT_NEAR(double(adam.host), 4 * array, 0.03 * array);
  EXPECT_NEAR(double(memory("lion", {}).host), 3 * array, 0.03 * array);
  EXPECT_NEAR(double(memory("adamw", 0.9).host), 5 * array, 0.03 * array);
  EXPECT_EQ(adam.total(), plain.total()) << "not on the GPU";
}

// What a step takes on one rank.
void step_on_one_rank(const Parts& parts, const CountedCase& c, DType dtype,
                      const comm::Group& group, Device device, const TrainSettings& settings) {
  DenoiseLayout layout;
  layout.tokens = Layout::cut(c.family->workload(c.clip, c.clip.tokens()).denoise.tokens(), 0, 1);
  layout.text = Layout::cut({c.clip.tokens()}, 0, 1);
  layout.latents = Layout::cut(c.clip.latents, 0, 1);
  layout.parts = {1, 1, 1};
  const DenoiseTask task = task_of(c.clip, group, layout);
  TrainedReplica own(*parts.model, task, group, settings, parts.images());
  own.use_values();
  const Tensor gradient = own.compute(sample_of(own, task, c, dtype, device.host())).gradient;
  own.add(gradient, 1);
  own.update(0, 1, 1);
}

TEST_P(TrainingDryRuns, CountMemory) {
  if (test::world().size() > 1) GTEST_SKIP() << "of a rank by itself: on a group of one";
  const CountedCase c = counted_case_of(GetParam());
  TrainSettings settings = settings_of(GetParam(), 1);
  for (const auto& [type, recomputes_blocks] : std::initializer_list<std::pair<DType, bool>>{
           {DType::float32, true}, {DType::bfloat16, true}, {DType::bfloat16, false}}) {
    const DType dtype = type;
    settings.recomputes_blocks = recomputes_blocks;
    const auto make = [&](const Checkpoint& shapes) {
      return c.parts([&](const char*) { return shapes; }, dtype, {}, settings);
    };
    const auto use = [&](const Parts& parts, const comm::Group& group, Device device) {
      step_on_one_rank(parts, c, dtype, group, device, settings);
    };
    const test::Taken said = test::taken_by_dry_run({dtype, ops::compute_dtype(dtype)}, make, use);
    const auto sum = [](const auto& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    };
    const std::int64_t before = sum(memory_by_purpose(false).present);
    const Parts parts =
        c.parts([&](const char* part) { return c.weights(part); }, dtype, {}, settings);
    const std::int64_t weights = sum(memory_by_purpose(false).present) - before;
    forget_memory_peaks();
    const std::int64_t bytes = trace::recorder().memory_bytes;
    use(parts, test::world(), {});
    const std::int64_t working = sum(memory_by_purpose(false).at_peak) - before - weights;
    EXPECT_EQ(said.weights, weights) << name_of(dtype);
    EXPECT_EQ(said.memory_bytes, trace::recorder().memory_bytes - bytes) << name_of(dtype);
    EXPECT_NEAR(double(said.working), double(working), 1e-3 * double(working)) << name_of(dtype);
  }
}

}  // namespace
}  // namespace reelmesh
