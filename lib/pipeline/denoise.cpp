#include "pipeline/denoise.hpp"

#include "base/trace.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"

namespace reelmesh::pipeline {
namespace {

// Noise of the whole latent, of which this box is kept, rounded to the pipeline's type.
void draw(TorchGenerator& generator, const Shape& global, const Box& box, DType dtype, float* out) {
  fill_noise(generator, global, box.offset, box.extent, out);
  if (dtype != DType::bfloat16) return;
  for (std::int64_t i = 0; i < box.numel(); ++i) out[i] = static_cast<float>(BFloat16(out[i]));
}

// The ranks that work on the same branches as this one.
comm::Group branch_group(const comm::Group& group, const Mesh& mesh) {
  if (mesh.cfg == 1) return group;
  comm::Group mine;
  for (int branch = 0; branch < mesh.cfg; ++branch) {
    const comm::Group ranks = group.range(branch * mesh.branch_ranks(), mesh.branch_ranks());
    if (ranks.member()) mine = ranks;
  }
  return mine;
}

// Predictions of all branches for this rank's box, from those of its own. With cfg 2 the rank of
// the other half that has the same box has the other branch.
std::vector<Tensor> all_branches(const comm::Group& group, const Mesh& mesh,
                                 std::vector<Tensor> mine) {
  if (mesh.cfg == 1) return mine;
  const trace::Scope scope("guidance", trace::Level::ops, "exchange");
  const Tensor own = mine.front(), other = Tensor::empty(own.shape(), own.dtype());
  const int partner = (group.rank() + mesh.branch_ranks()) % mesh.ranks();
  const comm::Message send{partner, own.raw(), own.bytes()};
  const comm::Message receive{partner, other.raw(), other.bytes()};
  group.exchange({&send, 1}, {&receive, 1});
  if (group.rank() < partner) return {own, other};
  return {other, own};
}

}  // namespace

Layout context_layout(const DenoiseLayout& layout, std::int64_t branches, std::int64_t channels) {
  const std::int64_t share = branches / layout.mesh.cfg;
  std::vector<Box> boxes;
  for (std::int64_t first = 0; first < branches; first += share) {
    for (int r = 0; r < layout.text.ranks(); ++r) {
      const Box& tokens = layout.text.box(r);
      boxes.push_back({{tokens.offset[0], first, 0}, {tokens.extent[0], share, channels}});
    }
  }
  return {{layout.text.global()[0], branches, channels}, std::move(boxes)};
}

Tensor denoise_clip(const Clip& clip, const CogVideoXTransformer& transformer,
                    const SchedulerConfig& scheduler, const comm::Group& group,
                    const DenoiseLayout& layout, const Tensor& context,
                    const std::function<void()>& step) {
  const CogVideoXConfig& config = transformer.config();
  const comm::Group ranks = branch_group(group, layout.mesh);
  const auto branches = static_cast<std::int64_t>(clip.branches.size());
  const CogVideoXPlacement placement(config, ranks, layout.grid, layout.text,
                                     branches / layout.mesh.cfg, layout.mesh.ring);
  const Layout whole = latent_layout(layout.grid, config.patch, config.in_channels);
  const Box& box = own_box(whole, ranks);
  TorchGenerator generator(clip.record.seed);
  Sampler sampler(clip.sampler, Schedule(scheduler, clip.record.steps));
  const Tensor latents = Tensor::empty(box.extent, DType::float32);
  const auto noise = [&](std::span<float> out) {
    draw(generator, whole.global(), box, transformer.dtype(), out.data());
  };
  noise(latents.span<float>());

  for (int i = 0; i < sampler.schedule().calls(); ++i) {
    const trace::Mark mark(&trace::Recorder::step, i);
    const trace::Scope scope("denoise_step");
    const std::int64_t timestep = sampler.schedule().timesteps()[static_cast<std::size_t>(i)];
    const std::vector<Tensor> predicted =
        all_branches(group, layout.mesh, transformer(placement, latents, context, timestep));
    const Tensor& prediction = predicted.back();
    if (branches > 1) {
      combine_guidance(
          guidance_scale(clip.record.guidance, clip.dynamic_guidance, clip.record.steps, timestep),
          predicted.front().span<float>(), prediction.span<float>(), prediction.span<float>());
    }
    sampler.step(i, prediction.span<float>(), latents.span<float>(), noise);
    step();
  }
  return latents;
}

}  // namespace reelmesh::pipeline
