#include "pipeline/denoise.hpp"

#include "base/interruption.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"

namespace reelmesh::pipeline {
namespace {

// video: of a clip made from a video, the box of the video's latents.
DenoiseState initial_state(const Clip& clip, const Box& box, const Tensor& video, Device device) {
  TorchGenerator generator(clip.seed());
  if (clip.input) {  // InputStage has drawn the same values
    const Shape none(box.extent.size(), 0);
    draw_initial_noise(clip.input->noise, generator, clip.input_shape(), none, none, {});
  }
  Tensor noise = Tensor::empty(box.extent, DType::float32);
  draw_initial_noise(clip.sampling.noise, generator, clip.latent_shape(), box.offset, box.extent,
                     noise.span<float>());
  if (!clip.sampling.first_noise) return {0, noise.on(device), {}, generator};
  Tensor latents = video.clone();
  add_noise(*clip.sampling.first_noise, noise, latents);
  return {0, latents.reshape(box.extent).on(device), {}, generator};
}

DenoiseState restored_state(const SavedState& saved, const Box& box, Device device) {
  DenoiseState state{saved.step, {}, {}, TorchGenerator::restored(saved.generator)};
  state.history.resize(static_cast<std::size_t>(saved.history));
  DenoiseState::for_each_tensor(state, [&](const std::string& name, Tensor& tensor) {
    tensor = saved.read(name, box).on(device);
  });
  return state;
}

}  // namespace

Layout over_first_ranks(const Layout& layout, int ranks) {
  std::vector<Box> boxes;
  for (int r = 0; r < layout.ranks(); ++r) boxes.push_back(layout.box(r));
  const Shape none(layout.global().size(), 0);
  boxes.resize(static_cast<std::size_t>(ranks), Box{none, none});
  return {layout.global(), std::move(boxes)};
}

Denoising::Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
                     std::span<const Conditioning> conditioning, const Denoiser& model)
    : Denoising(group, layout, batch, conditioning, model, {}) {}

Denoising::Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
                     std::span<const Conditioning> conditioning, const Denoiser& model,
                     std::span<const SavedState> saved, std::span<const Tensor> video_latents)
    : group_(group),
      branch_(layout.mesh.cfg == 1 ? group
                                   : group.split(group.rank() / layout.mesh.branch_ranks())),
      layout_(layout),
      batch_(batch),
      model_(model),
      latents_(layout.latents.with_axis(1, batch.front().latent_channels)),
      predict_(model.device(), group, branch_.capturable() && model.capturable(), [this] {
        std::vector<Tensor> latents;
        for (const DenoiseState& state : states_) latents.push_back(state.latents);
        return prepared_->predict(latents, time_);
      }) {
  const Clip& first = batch.front();
  prepared_ = model.prepare({.group = branch_,
                             .layout = layout,
                             .latents = first.latents,
                             .branches = first.format.branches / layout.mesh.cfg,
                             .size = first.format.size,
                             .fps = first.fps()},
                            conditioning);
  const Box& box = own_box(latents_, branch_);
  for (std::size_t clip = 0; clip < batch.size(); ++clip) {
    states_.push_back(saved.empty()
                          ? initial_state(batch[clip], box,
                                          video_latents.empty() ? Tensor() : video_latents[clip],
                                          model.device())
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
  const trace::Scope scope(trace::spans::guidance);
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

const std::vector<Tensor>& Denoising::predict(bool interruptible) {
  if (!interruptible || model_.device().is_cuda()) return predict_();
  at_interruption_point = [this] {
    if (group_.max(stop::requested() ? std::int64_t{1} : 0) > 0) throw Interrupted();
  };
  struct End {
    ~End() { at_interruption_point = nullptr; }
  } const end;
  return predict_();
}

void Denoising::step(bool interruptible) {
  const std::int64_t step = states_.front().step;
  const int i = static_cast<int>(step);
  const trace::Mark mark(&trace::Recorder::step, i);
  const trace::Scope scope(trace::spans::denoise_step);
  const Sampler& sampler = *batch_.front().sampling.sampler;  // all clips have the same timesteps
  const double timestep = sampler.timestep(i);
  // predict_ may replay a CUDA graph, so latents and timestep must stay at the same addresses.
  const Tensor time = model_.embed(timestep);
  if (time_.empty()) {
    time_ = time.clone();
  } else {
    time_.copy_from(time);
  }
  std::vector<Predictions> predicted = all_branches(predict(interruptible));
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

std::vector<RestartArray> Denoising::state_arrays(const DenoiseState& state) const {
  const Layout layout = over_first_ranks(latents_, group_.size());
  std::vector<RestartArray> arrays;
  DenoiseState::for_each_tensor(state, [&](const std::string& name, const Tensor& tensor) {
    const Box& box = own_box(layout, group_);
    const Tensor own = box.empty() ? Tensor::empty(box.extent, DType::float32) : tensor.on({});
    arrays.push_back({name, {own, layout, group_}});
  });
  return arrays;
}

}  // namespace reelmesh::pipeline
