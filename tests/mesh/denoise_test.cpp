// Transformer, guidance and sampler together: any mesh and any cuts have the bits of one rank, for
// clips alone and in batches.
#include "pipeline/denoise.hpp"

#include "base/trace.hpp"
#include "layout/relayout.hpp"
#include "mesh/random_mesh.hpp"
#include "models/reference.hpp"

namespace reelmesh::pipeline {
namespace {

using reelmesh::test::Dice;
using reelmesh::test::random_partition;
using reelmesh::test::random_tensor;
using reelmesh::test::Reference;
using reelmesh::test::same_bits;

Clip random_clip(Dice& dice, const CogVideoXConfig& config, std::uint64_t seed) {
  Clip clip;
  clip.record.seed = seed;
  clip.record.steps = 2;
  clip.record.guidance = 5;
  clip.dynamic_guidance = dice.roll(0, 1) == 1;
  clip.sampler = dice.roll(0, 1) == 1 ? SamplerKind::ddim : SamplerKind::dpm;
  const auto tokens = std::size_t(dice.roll(1, 20));
  clip.branches.resize(std::size_t(dice.roll(1, 2)), std::vector<std::int32_t>(tokens));
  clip.latent_frames = config.patch.frames * dice.roll(1, 3);
  clip.latent_height = config.patch.rows * dice.roll(1, 5);
  clip.latent_width = config.patch.columns * dice.roll(1, 5);
  return clip;
}

// Latents of each clip as one array on every rank, in this layout.
std::vector<Tensor> denoised(const Batch& batch, const CogVideoXTransformer& transformer,
                             const SchedulerConfig& scheduler, const comm::Group& group,
                             const DenoiseLayout& layout) {
  const CogVideoXConfig& config = transformer.config();
  const auto branches = std::int64_t(batch.front().branches.size());
  const Layout over = context_layout(layout, branches, config.text_channels);
  std::vector<Tensor> contexts;
  for (const Clip& clip : batch) {
    const Tensor context = random_tensor(over.global(), unsigned(clip.record.seed));
    const Sharded mine =
        relayout({context, Layout::replicated(over.global(), group.size()), group}, over);
    contexts.push_back(mine.local.to(transformer.dtype()));
  }
  const std::int64_t before = trace::recorder().bytes_sent;
  std::vector<Tensor> latents =
      denoise_batch(batch, transformer, scheduler, group, layout, contexts, [] {});
  const DenoiseSizes sizes = batch.front().sizes(config, transformer.dtype());
  EXPECT_EQ(trace::recorder().bytes_sent - before,
            steps_of(batch) * layout.step_bytes(sizes, group.rank()));
  // Both halves of cfg 2 have the same boxes: gather those of each half, and both must agree.
  const Layout boxes = latent_layout(layout.grid, config.patch, config.in_channels);
  for (Tensor& local : latents) {
    std::vector<Tensor> halves;
    for (int half = 0; half < layout.mesh.cfg; ++half) {
      const Layout embedded = boxes.embed(half * layout.mesh.branch_ranks(), group.size());
      const bool inside = group.rank() / layout.mesh.branch_ranks() == half;
      const Tensor held =
          inside ? local : Tensor::empty(own_box(embedded, group).extent, DType::float32);
      halves.push_back(
          relayout({held, embedded, group}, Layout::replicated(embedded.global(), group.size()))
              .local);
    }
    EXPECT_TRUE(same_bits(halves.front(), halves.back()));
    local = halves.front();
  }
  return latents;
}

class Kinds : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, Kinds, ::testing::Values("sincos", "rotary", "v1_5"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Kinds, AnyMeshCutsAndBatchGiveTheBitsOfOneRank) {
  const Reference reference(GetParam());
  const CogVideoXConfig& config = reference.transformer;
  const auto weights =
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model");
  const SchedulerConfig scheduler;
  const auto world = comm::Group::world();
  const comm::Group first = world.range(0, 1);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const CogVideoXTransformer transformer(weights, config, dtype);
    for (unsigned seed = 0; seed < 12; ++seed) {
      Dice dice(seed);
      const Clip clip = random_clip(dice, config, seed);
      const DenoiseSizes sizes = clip.sizes(config, dtype);
      DenoiseLayout layout = denoise_layout({}, Shard::automatic, sizes, world.size());
      if (seed > 0) {  // others than the plan would take
        layout.mesh.cfg =
            clip.branches.size() == 2 && world.size() % 2 == 0 ? int(dice.roll(1, 2)) : 1;
        const int ranks = world.size() / layout.mesh.cfg;
        layout.mesh.ring = dice.one_of(test::divisors(ranks));
        layout.mesh.ulysses = ranks / layout.mesh.ring;
        layout.grid = random_partition(dice, sizes.grid, ranks);
        layout.text = random_partition(dice, {sizes.text_tokens}, ranks);
      }
      Batch batch(std::size_t(dice.roll(1, 3)), clip);
      for (Clip& one : batch) one.record.seed = dice.roll(0, 1 << 20);
      const std::vector<Tensor> spread = denoised(batch, transformer, scheduler, world, layout);
      for (std::size_t i = 0; first.member() && i < batch.size(); ++i) {
        const Tensor alone = denoised({batch[i]}, transformer, scheduler, first,
                                      denoise_layout({}, Shard::automatic, sizes, 1))
                                 .front();
        EXPECT_TRUE(same_bits(spread[i], alone))
            << GetParam() << " seed " << seed << ", clip " << i << " of " << batch.size() << ": "
            << to_string(layout.mesh) << ", " << to_string(layout.grid);
        double sum = 0;
        for (const float x : alone.span<float>()) sum += std::abs(double(x));
        EXPECT_TRUE(std::isfinite(sum) && sum > 0);
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh::pipeline
