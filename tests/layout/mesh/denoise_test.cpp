// The denoising loop with CogVideoX's transformer: any mesh and any cuts give the bits of one rank,
// for single clips and batches, also after restoring a state saved on other ranks.
#include "job/denoise.hpp"

#include <map>

#include "base/stop.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "layout/mesh/random_mesh.hpp"
#include "layout/relayout.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/reference.hpp"
#include "ops/onednn.hpp"
#include "plan/denoise.hpp"
#include "support/dry_workloads.hpp"
#include "support/ranks.hpp"
#include "support/released_scheduler.hpp"

namespace reelmesh::pipeline {
namespace {

using reelmesh::test::Dice;
using reelmesh::test::random_partition;
using reelmesh::test::random_tensor;
using reelmesh::test::Reference;
using reelmesh::test::same_bits;

constexpr int steps = 3;

Clip random_clip(Dice& dice, const CogVideoXConfig& config, std::uint64_t seed, DType dtype) {
  const CogVideoXSampler& sampler = cogvideox_samplers()[std::size_t(dice.roll(0, 1))];
  Clip clip;
  clip.record.settings.seed = seed;
  clip.record.settings.fps = 8;
  clip.record.settings.steps = steps;
  clip.sampling = {
      .sampler = sampler.make(NoiseSchedule(released_scheduler(), steps)),
      .guidance = {dice.roll(0, 1) == 1 ? dynamic_guidance(5, steps) : constant_guidance(5),
                   config.out_channels},
      .noise = {.initial = dtype, .in_step = dtype}};
  const auto tokens =
      std::size_t(config.learned_positions ? config.max_text_tokens : dice.roll(1, 20));
  clip.texts.resize(std::size_t(dice.roll(1, 2)), std::vector<std::int32_t>(tokens));
  clip.format.branches = std::ssize(clip.texts);
  clip.latent_channels = config.latent_channels();
  clip.latents = {config.patch.frames * dice.roll(1, 3), config.patch.rows * dice.roll(1, 5),
                  config.patch.columns * dice.roll(1, 5)};
  if (config.learned_positions) {
    const Shape grid = config.sample_tokens();
    clip.latents = {grid[0], config.patch.rows * grid[1], config.patch.columns * grid[2]};
  }
  return clip;
}

// Of a batch of such clips.
DenoiseWorkload denoise_workload(const Clip& clip, const Reference& reference, DType dtype,
                                 std::int64_t clips = 1) {
  const Family& family = *test::family_of<CogVideoX>(
      test::cogvideox_folder(reference.transformer, reference.vae, reference.t5));
  Clip dry = clip;
  dry.video = {decoded_frames(clip.latents[0]), 8, 8};
  if (reference.transformer.takes_image()) {
    dry.input.emplace();
    dry.input->file.kind = InputKind::image;
  }
  return test::dry_workload(family, dry, clips, {dtype, ops::compute_dtype(dtype)})
      .sizes.front()
      .denoise;
}

DenoiseLayout planned_layout(const DenoiseWorkload& workload, int ranks) {
  return choose_layout(workload, {.ranks = ranks}).layout();
}

// A random layout, which the plan would usually not choose.
DenoiseLayout random_layout(Dice& dice, const DenoiseWorkload& w, int ranks) {
  DenoiseLayout layout;
  layout.mesh.cfg = w.branches == 2 && ranks % 2 == 0 ? int(dice.roll(1, 2)) : 1;
  const int of_branch = ranks / layout.mesh.cfg;
  layout.mesh.ring = dice.one_of(test::divisors(of_branch));
  layout.mesh.ulysses = of_branch / layout.mesh.ring;
  layout.tokens = random_partition(dice, w.tokens(), of_branch);
  layout.text = random_partition(dice, {w.text_tokens}, of_branch);
  layout.latents = latents_of_tokens(layout.tokens, w.patch, w.latents);
  return layout;
}

// This rank's part of random text embeddings and, for image to video, of random latents of an
// image, which depend only on the clip's seed.
std::vector<Conditioning> own_conditioning(const Batch& batch, const comm::Group& group,
                                           const DenoiseLayout& layout,
                                           const CogVideoXTransformer& transformer) {
  const std::int64_t channels = transformer.config().text_channels;
  std::vector<Conditioning> all;
  for (const Clip& clip : batch) {
    const Layout to = layout.conditioning(clip.tokens(), std::ssize(clip.texts), channels);
    const Tensor whole = random_tensor(to.global(), unsigned(clip.seed()));
    const Layout everywhere = Layout::replicated(to.global(), group.size());
    Conditioning& one =
        all.emplace_back(relayout({whole, everywhere, group}, to).local.to(transformer.dtype()));
    if (const std::int64_t image = transformer.config().image_channels(); image > 0) {
      const Layout latents = layout.latents.with_axis(1, image);
      const Box& box = latents.box(layout.branch_rank(group.rank()));
      const Tensor all_latents = random_tensor(latents.global(), 1 + unsigned(clip.seed()));
      one.image = Tensor::empty(box.extent, DType::float32);
      copy_box(box, all_latents, whole_box(latents.global()), one.image, box);
    }
  }
  return all;
}

// An array on every rank of its group.
Tensor whole(const Sharded& array) {
  return relayout(array, Layout::replicated(array.layout.global(), array.group.size())).local;
}

// Whole latents of each clip, on every rank. Checks that all ranks agree, and so both halves of
// cfg 2.
std::vector<Tensor> gathered(const Denoising& denoising, const comm::Group& group,
                             const DenoiseLayout& layout) {
  std::vector<Tensor> all;
  for (std::size_t clip = 0; clip < denoising.states().size(); ++clip) {
    const Tensor latents = whole(denoising.state_arrays(clip).front().values);
    const Layout mine = Layout::on_one_rank(latents.shape(), group.size(), group.size() - 1);
    const Tensor of_last =
        relayout({group.rank() + 1 == group.size()
                      ? latents
                      : Tensor::empty(Shape(latents.shape().size(), 0), DType::float32),
                  mine, group},
                 Layout::replicated(latents.shape(), group.size()))
            .local;
    EXPECT_TRUE(same_bits(latents, of_last)) << to_string(layout.mesh);
    all.push_back(latents);
  }
  return all;
}

std::vector<Tensor> denoised(const Batch& batch, const CogVideoXTransformer& transformer,
                             const comm::Group& group, const DenoiseLayout& layout,
                             const DenoiseWorkload& workload) {
  const std::vector<Conditioning> conditioning =
      own_conditioning(batch, group, layout, transformer);
  Denoising denoising(group, layout, batch, conditioning, transformer);
  const trace::Recorder& recorder = trace::recorder();
  const std::int64_t sent = recorder.bytes_sent, flops = recorder.flops;
  while (!denoising.finished()) denoising.step_together();
  if (std::ssize(batch) == workload.clips) {
    const StepCost step = workload.costs->denoise(0, layout, group.rank(), {}).step;
    const std::int64_t calls = batch.front().sampling.sampler->calls();
    EXPECT_EQ(recorder.bytes_sent - sent, calls * step.sent_bytes) << "as in a dry run";
    EXPECT_EQ(double(recorder.flops - flops), double(calls) * step.flops) << "as in a dry run";
  }
  return gathered(denoising, group, layout);
}

class Kinds : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, Kinds,
                         ::testing::Values("sincos", "rotary", "v1_5", "i2v", "i2v_1_5"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Kinds, AnyMeshCutsAndBatchGiveTheBitsOfOneRank) {
  const Reference reference(GetParam());
  const CogVideoXConfig& config = reference.transformer;
  const auto weights =
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model");
  const auto world = test::world();
  const comm::Group first = world.range(0, 1);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const CogVideoXTransformer transformer(weights, config, dtype);
    for (unsigned seed = 0; seed < 12; ++seed) {
      Dice dice(seed);
      const Clip clip = random_clip(dice, config, seed, dtype);
      const DenoiseWorkload of_one = denoise_workload(clip, reference, dtype);
      const DenoiseLayout layout = seed == 0 ? planned_layout(of_one, world.size())
                                             : random_layout(dice, of_one, world.size());
      Batch batch(std::size_t(dice.roll(1, 3)), clip);
      const DenoiseWorkload workload = denoise_workload(clip, reference, dtype, std::ssize(batch));
      for (Clip& one : batch) one.record.settings.seed = std::uint64_t(dice.roll(0, 1 << 20));
      const std::vector<Tensor> spread = denoised(batch, transformer, world, layout, workload);
      for (std::size_t i = 0; first.member() && i < batch.size(); ++i) {
        const Tensor alone =
            denoised({batch[i]}, transformer, first, planned_layout(of_one, 1), of_one).front();
        EXPECT_TRUE(same_bits(spread[i], alone))
            << GetParam() << " seed " << seed << ", clip " << i << " of " << batch.size() << ": "
            << to_string(layout.mesh) << ", " << to_string(layout.tokens);
        double sum = 0;
        for (const float x : alone.span<float>()) sum += std::abs(double(x));
        EXPECT_TRUE(std::isfinite(sum) && sum > 0);
      }
    }
  }
}

// Saves the states after every step and continues on another number of ranks with another layout.
TEST_P(Kinds, StatesContinueOnOtherRanks) {
  const Reference reference(GetParam());
  const CogVideoXConfig& config = reference.transformer;
  const CogVideoXTransformer transformer(
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model"), config,
      DType::bfloat16);
  const auto world = test::world();
  for (unsigned seed = 0; seed < 4; ++seed) {
    Dice dice(100 + seed);
    const Clip clip = random_clip(dice, config, seed, DType::bfloat16);
    const DenoiseWorkload workload = denoise_workload(clip, reference, DType::bfloat16);
    Batch batch(2, clip);
    *batch[1].record.settings.seed += 7;
    const std::vector<Tensor> expected =
        denoised(batch, transformer, world, planned_layout(workload, world.size()), workload);
    std::vector<std::map<std::string, Tensor>> arrays(batch.size());  // whole, of each clip
    std::vector<SavedState> saved;
    for (int step = 0; step < batch.front().sampling.sampler->calls(); ++step) {
      const int ranks = int(dice.roll(1, world.size()));
      const comm::Group some = world.range(0, ranks);
      const DenoiseLayout layout = random_layout(dice, workload, ranks);
      std::vector<SavedState> next(batch.size());
      if (some.member()) {
        const auto conditioning = own_conditioning(batch, some, layout, transformer);
        Denoising denoising(some, layout, batch, conditioning, transformer, saved);
        EXPECT_EQ(denoising.states().front().step, step);
        denoising.step_together();
        for (std::size_t i = 0; i < batch.size(); ++i) {
          const DenoiseState& state = denoising.states()[i];
          next[i] = {state.step, state.generator.saved(), std::ssize(state.history), {}};
          for (const RestartArray& array : denoising.state_arrays(i)) {
            arrays[i][array.name] = whole(array.values);
          }
        }
      }
      // Copies the first rank's states to all ranks, as a file would.
      for (std::size_t i = 0; i < batch.size(); ++i) {
        next[i].step = step + 1;
        next[i].generator = world.broadcast(next[i].generator, 0);
        next[i].history = comm::broadcast_value(world, next[i].history, 0);
        DenoiseState shape_of_state{.step = 0, .generator = TorchGenerator(0)};
        shape_of_state.history.resize(std::size_t(next[i].history));
        DenoiseState::for_each_tensor(shape_of_state, [&](const std::string& name, Tensor&) {
          const Shape shape = clip.latent_shape();
          const Tensor of_first =
              world.rank() == 0 ? arrays[i].at(name) : Tensor::empty({0, 0, 0, 0}, DType::float32);
          arrays[i][name] = whole({of_first, Layout::on_one_rank(shape, world.size(), 0), world});
        });
        next[i].read = [&arrays, i](const std::string& name, const Box& box) {
          Tensor part = Tensor::empty(box.extent, DType::float32);
          const Tensor& all = arrays[i].at(name);
          copy_box(box, all, whole_box(all.shape()), part, box);
          return part;
        };
      }
      saved = std::move(next);
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      EXPECT_TRUE(same_bits(arrays[i].at("latents"), expected[i]))
          << GetParam() << " seed " << seed << ", clip " << i;
    }
  }
}

// A request on one rank stops all ranks between the same two layers, and the step can be repeated.
TEST_P(Kinds, InterruptedStepLeavesTheStatesAsTheyWere) {
  const Reference reference(GetParam());
  const CogVideoXTransformer transformer(
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model"),
      reference.transformer, DType::float32);
  const auto world = test::world();
  Dice dice(7);
  const Clip clip = random_clip(dice, reference.transformer, 7, DType::float32);
  const DenoiseWorkload workload = denoise_workload(clip, reference, DType::float32);
  const DenoiseLayout layout = planned_layout(workload, world.size());
  const Batch batch{clip};
  const Tensor expected = denoised(batch, transformer, world, layout, workload).front();
  const auto conditioning = own_conditioning(batch, world, layout, transformer);
  Denoising denoising(world, layout, batch, conditioning, transformer);
  denoising.step_together(true);
  if (world.rank() == world.size() - 1) stop::request(stop::time_limit);
  EXPECT_THROW(denoising.step_together(true), Interrupted);
  stop::reset();
  EXPECT_EQ(denoising.states().front().step, 1);
  while (!denoising.finished()) denoising.step_together(true);
  EXPECT_TRUE(same_bits(gathered(denoising, world, layout).front(), expected)) << GetParam();
}

TEST(SavedState, IsRefusedWhereItIsDamaged) {
  TorchGenerator generator(5);
  EXPECT_NO_THROW(TorchGenerator::restored(generator.saved()));
  EXPECT_THROW(TorchGenerator::restored(generator.saved() + " 1"), Error);
  EXPECT_THROW(TorchGenerator::restored("mt19937 3"), Error);
}

}  // namespace
}  // namespace reelmesh::pipeline
