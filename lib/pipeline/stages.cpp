#include "pipeline/stages.hpp"

#include "base/trace.hpp"
#include "layout/relayout.hpp"
#include "ops/pointwise.hpp"
#include "pipeline/denoise.hpp"
#include "plan/decode.hpp"

namespace reelmesh::pipeline {

Sharded hand_over(const Sharded& x, const Layout& to) {
  const trace::Scope scope("handover", trace::Level::stages, "exchange");
  return relayout(x, to, true);
}

Encode::Encode(const comm::Group& world, const Plan& plan, const Family& model, DType dtype)
    : world_(world),
      group_(plan.text),
      stages_(plan.device_map.stages()),
      model_(model),
      dtype_(dtype),
      layers_(stages_.size()) {}

void Encode::load(Device device) {
  device_ = device;
  const Checkpoint weights = model_.text_encoder_weights().on(device);
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
      if (device_.is_cuda()) {  // one of them may be loading still
        if (world_.rank() == before) world_.meet({&holder, 1});
        if (world_.rank() == holder) world_.meet({&before, 1});
      }
      if (world_.rank() == before) {
        const comm::Message send{holder, x};
        world_.exchange({&send, 1}, {});
      } else if (world_.rank() == holder) {
        x = Tensor::empty({tokens, 1, model_.text_encoder().d_model}, t5_stream(dtype_), device_);
        const comm::Message receive{before, x};
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
  Sharded context{Tensor::empty(layout.box(world_.rank()).extent, dtype_, device_), layout, world_};
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
        std::vector<Tensor> all{embedding};
        if (branches > 1) all.insert(all.begin(), last_negative_embedding_);
        context.local = ops::join_batches(all);
      }
    }
  }
  return context;
}

Denoise::Denoise(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model,
                 DType dtype)
    : DenoiseStage(world, plan), model_(model), dtype_(dtype) {}

void Denoise::read_weights(Device device) {
  transformer_.emplace(model_.transformer_weights().on(device), model_.transformer, dtype_);
}

DenoiseLayout Denoise::layout(const Clip& clip, std::size_t place) const {
  return denoise_layout(plan_, clip.sizes(model_.transformer, dtype_), place % replicas());
}

Layout Denoise::context_layout(const Clip& clip, std::size_t place) const {
  return pipeline::context_layout(layout(clip, place),
                                  static_cast<std::int64_t>(clip.branches.size()),
                                  model_.text_encoder.d_model)
      .embed(plan_.denoise[place % replicas()].first, world_.size());
}

std::vector<Sharded> Denoise::operator()(const Batch& batch, std::size_t place,
                                         const std::vector<Sharded>& contexts,
                                         const std::function<void()>& step) const {
  const comm::Group& group = groups_[place % replicas()];
  const CogVideoXConfig& config = model_.transformer;
  const DenoiseLayout over_group = layout(batch.front(), place);
  // Where both halves of the group have the same boxes, those of the first half are the result.
  const Layout result = latent_layout(over_group.grid, config.patch, config.in_channels)
                            .without_front(0, batch.front().dropped_frames)
                            .embed(plan_.denoise[place % replicas()].first, world_.size());
  const Box& box = result.box(world_.rank());
  std::vector<Tensor> latents;
  if (group.member()) {
    std::vector<Tensor> own;
    for (const Sharded& context : contexts) own.push_back(context.local);
    latents = denoise_batch(batch, *transformer_, model_.scheduler, group, over_group, own, step);
  }
  std::vector<Sharded> made;
  for (std::size_t clip = 0; clip < batch.size(); ++clip) {
    const Tensor kept =
        box.empty() ? Tensor::empty(box.extent, DType::float32)
                    : latents[clip].rows(latents[clip].shape(0) - box.extent[0], box.extent[0]);
    made.push_back({kept, result, world_});
  }
  return made;
}

Decode::Decode(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model,
               DType dtype)
    : DecodeStage(world, plan),
      speeds_(plan.speeds_of(plan.decode)),
      model_(model),
      dtype_(dtype) {}

void Decode::read_weights(Device device) {
  decoder_.emplace(model_.vae_weights().on(device), model_.vae, dtype_);
}

Layout Decode::latents(const Shape& global) const {
  return decode_layout(global[2], global[3], ranks_.count, speeds_)
      .with_axis(0, global[1])
      .with_axis(0, global[0])
      .embed(ranks_.first, world_.size());
}

Sharded Decode::operator()(const Clip& /*clip*/, const Sharded& latents) const {
  const trace::Scope scope("decode");
  return decoder_->pixels(latents);
}

}  // namespace reelmesh::pipeline
