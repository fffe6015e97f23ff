#include "pipeline/denoise.hpp"

#include "base/trace.hpp"
#include "layout/relayout.hpp"

namespace reelmesh::pipeline {
namespace {

Tensor part_of(const Tensor& whole, const Box& box, Device device) {
  Tensor part = Tensor::empty(box.extent, whole.dtype());
  copy_box(box, whole, whole_box(whole.shape()), part, box);
  return part.on(device);
}

DenoiseState initial_state(const Clip& clip, const Box& box, Device device) {
  TorchGenerator generator(clip.record.seed);
  Tensor noise = Tensor::empty(box.extent, DType::float32);
  draw_initial_noise(clip.sampling.noise, generator, clip.latent_shape(), box.offset, box.extent,
                     noise.span<float>());
  return {0, noise.on(device), {}, generator};
}

DenoiseState restored_state(const SavedState& saved, const Box& box, Device device) {
  DenoiseState state{saved.step, {}, {}, TorchGenerator::restored(saved.generator)};
  state.history.resize(saved.arrays.size() - 1);
  std::size_t next = 0;
  DenoiseState::for_each_tensor(state, [&](const std::string& name, Tensor& tensor) {
    const auto& [saved_name, whole] = saved.arrays.at(next++);
    expect(saved_name == name, "a saved state has {} where {} was expected", saved_name, name);
    tensor = part_of(whole, box, device);
  });
  return state;
}

}  // namespace

Denoising::Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
                     std::span<const Conditioning> conditioning, const Denoiser& model)
    : Denoising(group, layout, batch, conditioning, model, {}) {}

Denoising::Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
                     std::span<const Conditioning> conditioning, const Denoiser& model,
                     std::span<const SavedState> saved)
    : group_(group),
      branch_(layout.mesh.cfg == 1 ? group
                                   : group.split(group.rank() / layout.mesh.branch_ranks())),
      layout_(layout),
      batch_(batch),
      model_(model),
      latents_(layout.latents.with_axis(1, batch.front().latent_channels)),
      predict_(model.device(), branch_, [this] {
        std::vector<Tensor> latents;
        for (const DenoiseState& state : states_) latents.push_back(state.latents);
        return placed_->predict(latents, time_);
      }) {
  const Clip& first = batch.front();
  placed_ = model.place({.group = branch_,
                         .layout = layout,
                         .latents = first.latents,
                         .branches = first.format.branches / layout.mesh.cfg,
                         .size = first.format.size,
                         .fps = first.record.fps},
                        conditioning);
  const Box& box = own_box(latents_, branch_);
  for (std::size_t clip = 0; clip < batch.size(); ++clip) {
    states_.push_back(saved.empty() ? initial_state(batch[clip], box, model.device())
                                    : restored_state(saved[clip], box, model.device()));
  }
}

bool Denoising::finished() const {
  return states_.front().step == batch_.front().sampling.sampler->calls();
}

// The predictions of both branches of each clip. With cfg 2 a rank exchanges them with its partner,
// the rank of the other half of the group that has the same box.
std::vector<Denoising::Predictions> Denoising::all_branches(const std::vector<Tensor>& own) const {
  std::vector<Predictions> all;
  if (layout_.mesh.cfg == 1) {
    const std::size_t branches = own.size() / batch_.size();
    for (std::size_t i = 0; i < own.size(); i += branches) {
      all.push_back({own[i], own[i + branches - 1]});
    }
    return all;
  }
  const trace::Scope scope("guidance", trace::Level::ops, "exchange");
  const int partner = (group_.rank() + layout_.mesh.branch_ranks()) % layout_.mesh.ranks();
  std::vector<comm::Message> sends, receives;
  for (const Tensor& mine : own) {
    const Tensor other = Tensor::empty(mine.shape(), mine.dtype(), mine.device());
    sends.push_back({partner, mine});
    receives.push_back({partner, other});
    all.push_back(group_.rank() < partner ? Predictions{mine, other} : Predictions{other, mine});
  }
  group_.exchange(sends, receives);
  return all;
}

void Denoising::step() {
  const std::int64_t step = states_.front().step;
  const int i = static_cast<int>(step);
  const trace::Mark mark(&trace::Recorder::step, i);
  const trace::Scope scope("denoise_step");
  const Sampler& sampler = *batch_.front().sampling.sampler;  // all clips have the same timesteps
  const double timestep = sampler.timestep(i);
  // predict_ may replay a CUDA graph, so latents and timestep must stay at the same addresses.
  const Tensor time = model_.embed(timestep);
  if (time_.empty()) {
    time_ = time.clone();
  } else {
    time_.copy_from(time);
  }
  std::vector<Predictions> predicted = all_branches(predict_());
  const Box& box = own_box(latents_, branch_);
  for (std::size_t clip = 0; clip < batch_.size(); ++clip) {
    const SamplingRecipe& recipe = batch_[clip].sampling;
    DenoiseState& state = states_[clip];
    auto& [unconditional, prediction] = predicted[clip];
    if (batch_[clip].format.branches > 1) {
      recipe.guidance.apply(timestep, unconditional, prediction);
    }
    recipe.sampler->step(i, prediction, state.latents, state.history, [&](std::span<float> noise) {
      draw_step_noise(recipe.noise, state.generator, latents_.global(), box.offset, box.extent,
                      noise);
    });
    ++state.step;
  }
}

std::vector<SavedState> Denoising::save() const {
  std::vector<SavedState> all;
  const Layout whole = Layout::replicated(latents_.global(), latents_.ranks());
  for (const DenoiseState& state : states_) {
    SavedState saved{state.step, state.generator.saved(), {}};
    DenoiseState::for_each_tensor(state, [&](const std::string& name, const Tensor& tensor) {
      const Sharded spread{tensor.on({}), latents_, branch_};
      saved.arrays.emplace_back(name, relayout(spread, whole).local.clone());
    });
    all.push_back(std::move(saved));
  }
  return all;
}

}  // namespace reelmesh::pipeline
