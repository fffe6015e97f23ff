#include "pipeline/opensora_stages.hpp"

#include "base/trace.hpp"
#include "pipeline/repeated_call.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"

namespace reelmesh::pipeline {

STDiTClip stdit_clip(const Clip& clip) {
  constexpr double fps_of_images = 120;  // what release 1.2 was told of them in its training
  return {{clip.latent_frames, clip.latent_height, clip.latent_width},
          clip.size.height,
          clip.size.width,
          clip.size.frames > 1 ? clip.record.fps : fps_of_images};
}

OpenSoraSampler::OpenSoraSampler(const OpenSoraFolder& model, int steps, const VideoSize& size) {
  if (const auto* config = std::get_if<IddpmConfig>(&model.scheduler)) {
    guided_channels_ = config->guided_channels;
    sampler_.emplace<Iddpm>(*config, steps);
  } else {
    guided_channels_ = model.transformer.in_channels;
    sampler_.emplace<RectifiedFlow>(std::get<RectifiedFlowConfig>(model.scheduler), steps, size);
  }
}

int OpenSoraSampler::calls() const {
  const auto* diffusion = std::get_if<Iddpm>(&sampler_);
  return diffusion != nullptr ? diffusion->calls() : std::get<RectifiedFlow>(sampler_).calls();
}

double OpenSoraSampler::timestep(int i) const {
  const auto at = static_cast<std::size_t>(i);
  if (const auto* diffusion = std::get_if<Iddpm>(&sampler_)) {
    return static_cast<double>(diffusion->timesteps().at(at));
  }
  return std::get<RectifiedFlow>(sampler_).timesteps().at(at);
}

void OpenSoraSampler::step(int i, double guidance, const Tensor& uncond, const Tensor& cond,
                           const Tensor& x, const Iddpm::DrawNoise& draw) const {
  guide_channels(guidance, guided_channels_, uncond, cond);
  if (const auto* diffusion = std::get_if<Iddpm>(&sampler_)) {
    diffusion->step(i, cond, x, draw);
  } else {
    std::get<RectifiedFlow>(sampler_).step(i, cond, x);
  }
}

OpenSoraDenoise::OpenSoraDenoise(const comm::Group& world, const Plan& plan,
                                 const OpenSoraFolder& model, DType dtype)
    : DenoiseStage(world, plan), model_(model), dtype_(dtype) {}

void OpenSoraDenoise::read_weights(Device device) {
  transformer_.emplace(model_.transformer_weights().on(device), model_.transformer, dtype_);
}

Layout OpenSoraDenoise::context_layout(const Clip& clip, std::size_t place) const {
  const RankRange& range = plan_.denoise[place % replicas()];
  return Layout::replicated({static_cast<std::int64_t>(clip.branches.front().size()), 1,
                             model_.text_encoder.d_model},
                            range.count)
      .embed(range.first, world_.size());
}

std::vector<Sharded> OpenSoraDenoise::operator()(const Batch& batch, std::size_t place,
                                                 const std::vector<Sharded>& contexts,
                                                 const std::function<void()>& step) const {
  const RankRange& range = plan_.denoise[place % replicas()];
  const comm::Group& group = groups_[place % replicas()];
  const STDiTConfig& config = model_.transformer;
  const STDiTClip seen = stdit_clip(batch.front());
  const SpaceTime layouts = space_time_layout(plan_.shard, seen.tokens(config.patch), range.count,
                                              plan_.speeds_of(range));
  const Layout boxes = latents_layout(layouts, seen, config.patch, config.in_channels);
  const Layout result = boxes.embed(range.first, world_.size());
  std::vector<Tensor> latents(batch.size(),
                              Tensor::empty(result.box(world_.rank()).extent, DType::float32));
  if (group.member()) latents = sample(batch, group, layouts, boxes, contexts, step);
  std::vector<Sharded> made;
  for (const Tensor& own : latents) made.push_back({own, result, world_});
  return made;
}

std::vector<Tensor> OpenSoraDenoise::sample(const Batch& batch, const comm::Group& group,
                                            const SpaceTime& layouts, const Layout& boxes,
                                            const std::vector<Sharded>& contexts,
                                            const std::function<void()>& step) const {
  const Clip& first = batch.front();
  const Device device = transformer_->device();
  const STDiTPlacement placement(model_.transformer, group, layouts, stdit_clip(first),
                                 std::ssize(batch), device);
  const OpenSoraSampler sampler(model_, first.record.steps, first.size);
  const Box& box = own_box(boxes, group);
  std::vector<STDiTContext> texts;
  std::vector<TorchGenerator> generators;
  std::vector<Tensor> latents;
  for (std::size_t clip = 0; clip < batch.size(); ++clip) {
    const Tensor& text = contexts[clip].local;
    texts.push_back(transformer_->read(text.reshape({text.shape(0), text.shape(2)})));
    generators.emplace_back(batch[clip].record.seed);
    Tensor noise = Tensor::empty(box.extent, DType::float32);
    fill_noise_by_channel(generators[clip], boxes.global(), box.offset, box.extent, 1,
                          noise.data<float>());
    // Release 1.2 draws in the type that it computes in, release 1.0 in float32.
    if (model_.transformer.kind == STDiTConfig::Kind::v3) {
      noise = noise.to(dtype_).to(DType::float32);
    }
    latents.push_back(noise.on(device));
  }
  // Every call finds its latents and its timestep in the same memory. → of each clip both branches.
  const Tensor sinusoid = transformer_->embed(sampler.timestep(0));
  RepeatedCall transform(device, group, [&] {
    std::vector<Tensor> flat;
    for (const auto& predictions : (*transformer_)(placement, latents, texts, sinusoid)) {
      flat.insert(flat.end(), predictions.begin(), predictions.end());
    }
    return flat;
  });
  for (int i = 0; i < sampler.calls(); ++i) {
    const trace::Mark mark(&trace::Recorder::step, i);
    const trace::Scope scope("denoise_step");
    sinusoid.copy_from(transformer_->embed(sampler.timestep(i)));
    const std::vector<Tensor>& predicted = transform();
    for (std::size_t clip = 0; clip < batch.size(); ++clip) {
      const std::size_t both = STDiT::branches * clip;
      sampler.step(i, first.record.guidance, predicted[both], predicted[both + 1], latents[clip],
                   [&](std::span<float> noise) {
                     // The reference draws for both branches and goes on with the first.
                     fill_noise_by_channel(generators[clip], boxes.global(), box.offset, box.extent,
                                           2, noise.data());
                   });
    }
    step();
  }
  for (Tensor& own : latents) own = own.on({});
  return latents;
}

OpenSoraDecode::OpenSoraDecode(const comm::Group& world, const Plan& plan,
                               const OpenSoraFolder& model, DType dtype)
    : DecodeStage(world, plan),
      speeds_(plan.speeds_of(plan.decode)),
      model_(model),
      dtype_(dtype) {}

void OpenSoraDecode::read_weights(Device device) {
  decoder_.emplace(model_.vae_weights().on(device), model_.vae, dtype_, speeds_);
}

Layout OpenSoraDecode::latents(const Shape& global) const {
  return OpenSoraDecoder::layout(model_.vae, global, ranks_.count, speeds_)
      .embed(ranks_.first, world_.size());
}

Sharded OpenSoraDecode::operator()(const Clip& clip, const Sharded& latents) const {
  const trace::Scope scope("decode");
  return decoder_->pixels(latents, clip.size.frames);
}

}  // namespace reelmesh::pipeline
