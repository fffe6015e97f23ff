#include "pipeline/stages.hpp"

#include <cstring>

#include "base/trace.hpp"
#include "layout/relayout.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"

namespace reelmesh::pipeline {

Sharded hand_over(const Sharded& x, const Layout& to) {
  const trace::Scope scope("handover", trace::Level::stages, "exchange");
  return relayout(x, to);
}

Encode::Encode(const comm::Group& world, const Plan& plan, const Family& model, DType dtype)
    : world_(world),
      group_(plan.text),
      stages_(plan.device_map.stages()),
      model_(model),
      dtype_(dtype),
      layers_(stages_.size()) {}

void Encode::load() {
  const Checkpoint weights = model_.text_encoder_weights();
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const DeviceMap::Stage& stage = stages_[i];
    if (world_.rank() != group_.first + stage.rank) continue;
    const trace::Scope scope("load", trace::Level::stages, "file");
    layers_[i].emplace(weights, model_.text_encoder(),
                       T5Part{stage.first, stage.last, stage.embedding, stage.final_norm}, dtype_);
  }
}

void Encode::release() {
  for (auto& layers : layers_) layers.reset();
}

// The hidden state goes from stage to stage; this rank works on the stages that it holds.
Tensor Encode::encode(const std::vector<std::int32_t>& ids) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  Tensor x;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const int holder = group_.first + stages_[i].rank;
    if (i > 0) {
      const int before = group_.first + stages_[i - 1].rank;
      if (world_.rank() == before) {
        const comm::Message send{holder, x.raw(), x.bytes()};
        world_.exchange({&send, 1}, {});
      } else if (world_.rank() == holder) {
        x = Tensor::empty({tokens, 1, model_.text_encoder().d_model}, dtype_);
        const comm::Message receive{before, x.raw(), x.bytes()};
        world_.exchange({}, {&receive, 1});
      }
    }
    if (world_.rank() != holder) continue;
    const trace::Scope scope("encode");
    x = (*layers_[i])(i == 0 ? layers_[i]->embed(ids) : x);
  }
  return x;
}

Sharded Encode::operator()(const Clip& clip) {
  const auto branches = static_cast<std::int64_t>(clip.branches.size());
  const auto tokens = static_cast<std::int64_t>(clip.branches.front().size());
  const std::int64_t channels = model_.text_encoder().d_model;
  const int last = group_.first + stages_.back().rank;
  const Layout layout = Layout::on_one_rank({tokens, branches, channels}, world_.size(), last);
  Sharded context{Tensor::empty(layout.box(world_.rank()).extent, dtype_), layout, world_};
  if (!group_.contains(world_.rank())) return context;

  for (std::int64_t branch = 0; branch < branches; ++branch) {
    const auto& ids = clip.branches[static_cast<std::size_t>(branch)];
    const bool negative = branch + 1 < branches;
    if (!negative || ids != last_negative_) {
      Tensor embedding = encode(ids);
      if (negative) {
        last_negative_ = ids;
        last_negative_embedding_ = embedding;
      }
      if (!negative && world_.rank() == last) {
        const auto bytes = static_cast<std::size_t>(channels * size_of(dtype_));
        for (std::int64_t t = 0; t < tokens; ++t) {
          auto* into = static_cast<std::byte*>(context.local.rows(t, 1).raw());
          if (branches > 1) {
            std::memcpy(into, last_negative_embedding_.rows(t, 1).raw(), bytes);
          }
          std::memcpy(into + static_cast<std::size_t>(branch) * bytes, embedding.rows(t, 1).raw(),
                      bytes);
        }
      }
    }
  }
  return context;
}

namespace {

// Noise of the whole latent, of which this box is kept, rounded to the pipeline's type.
void draw(TorchGenerator& generator, const Layout& layout, int rank, DType dtype, float* out) {
  const Box& box = layout.box(rank);
  fill_noise(generator, layout.global(), box.offset, box.extent, out);
  if (dtype != DType::bfloat16) return;
  for (std::int64_t i = 0; i < box.numel(); ++i) out[i] = static_cast<float>(BFloat16(out[i]));
}

}  // namespace

Denoise::Denoise(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model,
                 DType dtype)
    : DenoiseStage(world, plan), model_(model), dtype_(dtype) {}

void Denoise::load() {
  for (const comm::Group& group : groups_) {
    if (!group.member()) continue;
    const trace::Scope scope("load", trace::Level::stages, "file");
    transformer_.emplace(model_.transformer_weights(), model_.transformer, dtype_);
  }
}

Layout Denoise::context_layout(const Clip& clip, std::size_t place) const {
  const RankRange& range = plan_.denoise[place % replicas()];
  return Layout::cut({static_cast<std::int64_t>(clip.branches.front().size()),
                      static_cast<std::int64_t>(clip.branches.size()), model_.text_encoder.d_model},
                     0, range.count)
      .embed(range.first, world_.size());
}

Sharded Denoise::operator()(const Clip& clip, std::size_t place, const Sharded& context,
                            const std::function<void()>& step) const {
  const RankRange& range = plan_.denoise[place % replicas()];
  const comm::Group& group = groups_[place % replicas()];
  const CogVideoXConfig& config = model_.transformer;
  const Layout grid = token_layout(plan_.shard, clip.grid(config.patch), range.count);
  const Layout whole = grid.scaled(0, config.patch.frames)
                           .scaled(1, config.patch.rows)
                           .scaled(2, config.patch.columns)
                           .with_axis(1, config.in_channels);
  const Layout kept = whole.without_front(0, clip.dropped_frames);
  const Layout result = kept.embed(range.first, world_.size());
  if (!group.member()) {
    return {Tensor::empty(result.box(world_.rank()).extent, DType::float32), result, world_};
  }

  const auto branches = static_cast<std::int64_t>(clip.branches.size());
  const Layout text = Layout::cut({context.layout.global()[0]}, 0, range.count);
  const CogVideoXPlacement placement(config, group, grid, text, branches);
  TorchGenerator generator(clip.record.seed);
  Sampler sampler(clip.sampler, Schedule(model_.scheduler, clip.record.steps));
  const Tensor latents = Tensor::empty(whole.box(group.rank()).extent, DType::float32);
  draw(generator, whole, group.rank(), dtype_, latents.data<float>());

  for (int i = 0; i < sampler.schedule().calls(); ++i) {
    const trace::Mark mark(&trace::Recorder::step, i);
    const trace::Scope scope("denoise_step");
    const std::int64_t timestep = sampler.schedule().timesteps()[static_cast<std::size_t>(i)];
    const std::vector<Tensor> predicted =
        (*transformer_)(placement, latents, context.local, timestep);
    const Tensor& prediction = predicted.back();
    if (branches > 1) {
      combine_guidance(
          guidance_scale(clip.record.guidance, clip.dynamic_guidance, clip.record.steps, timestep),
          predicted.front().span<float>(), prediction.span<float>(), prediction.span<float>());
    }
    sampler.step(i, prediction.span<float>(), latents.span<float>(), [&](std::span<float> box) {
      draw(generator, whole, group.rank(), dtype_, box.data());
    });
    step();
  }
  const std::int64_t frames = kept.box(group.rank()).extent[0];
  return {latents.rows(latents.shape(0) - frames, frames), result, world_};
}

Decode::Decode(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model,
               DType dtype)
    : DecodeStage(world, plan), model_(model), dtype_(dtype) {}

void Decode::load() {
  if (!group_.member()) return;
  const trace::Scope scope("load", trace::Level::stages, "file");
  decoder_.emplace(model_.vae_weights(), model_.vae, dtype_);
}

Layout Decode::latents(const Shape& global) const {
  return Layout::cut(global, 2, ranks_.count).embed(ranks_.first, world_.size());
}

Sharded Decode::operator()(const Clip& /*clip*/, const Sharded& latents) const {
  const trace::Scope scope("decode");
  return decoder_->pixels(latents);
}

}  // namespace reelmesh::pipeline
