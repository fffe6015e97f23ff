#include "pipeline/denoise.hpp"

#include "base/trace.hpp"
#include "ops/pointwise.hpp"
#include "pipeline/repeated_call.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"

namespace reelmesh::pipeline {
namespace {

// Noise of the whole latent, of which this box is kept, rounded to the pipeline's type.
void draw(TorchGenerator& generator, const Shape& global, const Box& box, DType dtype, float* out) {
  fill_noise(generator, global, box.offset, box.extent, out);
  if (dtype == DType::float32) return;
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < box.numel(); ++i) out[i] = static_cast<float>(T(out[i]));
  });
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

// What the transformer predicts of one clip, for this rank's box.
struct Predictions {
  Tensor first;  // without the prompt, where there are two branches
  Tensor last;   // with the prompt
};

// Of each clip all branches, from those of its own that the rank has: those of the first clip, then
// of the next. With cfg 2 the rank of the other half that has the same box has the other branches.
std::vector<Predictions> all_branches(const comm::Group& group, const Mesh& mesh,
                                      const std::vector<Tensor>& mine, std::size_t clips) {
  std::vector<Predictions> all;
  if (mesh.cfg == 1) {
    const std::size_t branches = mine.size() / clips;
    for (std::size_t i = 0; i < mine.size(); i += branches) {
      all.push_back({mine[i], mine[i + branches - 1]});
    }
    return all;
  }
  const trace::Scope scope("guidance", trace::Level::ops, "exchange");
  const int partner = (group.rank() + mesh.branch_ranks()) % mesh.ranks();
  std::vector<comm::Message> sends, receives;
  for (const Tensor& own : mine) {
    const Tensor other = Tensor::empty(own.shape(), own.dtype(), own.device());
    sends.push_back({partner, own});
    receives.push_back({partner, other});
    all.push_back(group.rank() < partner ? Predictions{own, other} : Predictions{other, own});
  }
  group.exchange(sends, receives);
  return all;
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

std::vector<Tensor> denoise_batch(const Batch& batch, const CogVideoXTransformer& transformer,
                                  const SchedulerConfig& scheduler, const comm::Group& group,
                                  const DenoiseLayout& layout, std::span<const Tensor> contexts,
                                  const std::function<void()>& step) {
  const CogVideoXConfig& config = transformer.config();
  const Device device = transformer.device();
  const comm::Group ranks = branch_group(group, layout.mesh);
  const ClipRecord& common = batch.front().record;
  const auto branches = static_cast<std::int64_t>(batch.front().branches.size());
  const CogVideoXPlacement placement(config, ranks, layout.grid, layout.text,
                                     std::ssize(batch) * (branches / layout.mesh.cfg),
                                     layout.mesh.ring, device);
  const Tensor context = ops::join_batches(contexts).on(device);
  const Layout whole = latent_layout(layout.grid, config.patch, config.in_channels);
  const Box& box = own_box(whole, ranks);
  const Schedule schedule(scheduler, common.steps);
  std::vector<TorchGenerator> generators;
  std::vector<Sampler> samplers;
  std::vector<Tensor> latents;
  const auto noise = [&](std::size_t clip, std::span<float> out) {
    draw(generators[clip], whole.global(), box, transformer.dtype(), out.data());
  };
  for (std::size_t clip = 0; clip < batch.size(); ++clip) {
    generators.emplace_back(batch[clip].record.seed);
    samplers.emplace_back(batch[clip].sampler, schedule);
    const Tensor first = Tensor::empty(box.extent, DType::float32);
    noise(clip, first.span<float>());
    latents.push_back(first.on(device));
  }
  // Every call finds its latents and its timestep in the same memory.
  const Tensor sinusoid = transformer.embed(schedule.timesteps().front());
  RepeatedCall transform(device, ranks,
                         [&] { return transformer(placement, latents, context, sinusoid); });

  for (int i = 0; i < schedule.calls(); ++i) {
    const trace::Mark mark(&trace::Recorder::step, i);
    const trace::Scope scope("denoise_step");
    const std::int64_t timestep = schedule.timesteps()[static_cast<std::size_t>(i)];
    sinusoid.copy_from(transformer.embed(timestep));
    const std::vector<Predictions> predicted =
        all_branches(group, layout.mesh, transform(), batch.size());
    for (std::size_t clip = 0; clip < batch.size(); ++clip) {
      const Tensor& prediction = predicted[clip].last;
      if (branches > 1) {
        combine_guidance(
            guidance_scale(common.guidance, batch[clip].dynamic_guidance, common.steps, timestep),
            predicted[clip].first, prediction, prediction);
      }
      samplers[clip].step(i, prediction, latents[clip],
                          [&](std::span<float> out) { noise(clip, out); });
    }
    step();
  }
  for (Tensor& clip : latents) clip = clip.on({});
  return latents;
}

}  // namespace reelmesh::pipeline
