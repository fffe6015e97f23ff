#include "job/denoise.hpp"

#include <algorithm>

#include "base/interruption.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"

namespace reelmesh {
namespace {

// The ranks that compute the same branches as this one.
comm::Group branch_of(const comm::Group& group, const Mesh& mesh) {
  if (mesh.cfg == 1) return group;
  std::vector<int> halves;
  for (int rank = 0; rank < group.size(); ++rank) halves.push_back(rank / mesh.branch_ranks());
  return group.split(halves);
}

// video: of a clip made from a video, the box of the video's latents.
DenoiseState initial_state(const Clip& clip, const Box& box, const Tensor& video, Device device) {
  TorchGenerator generator(clip.seed());
  if (clip.input && clip.input->noise) {  // InputStage has drawn the same values
    const Shape none(box.extent.size(), 0);
    draw_initial_noise(*clip.input->noise, generator, clip.input_shape(), none, none, {});
  }
  if (device.only_shapes)
    return {0, Tensor::empty(box.extent, DType::float32, device), {}, generator, {}};
  Tensor noise = Tensor::empty(box.extent, DType::float32);
  draw_initial_noise(clip.sampling.noise, generator, clip.latent_shape(), box.offset, box.extent,
                     noise.span<float>());
  if (!clip.sampling.first_noise) return {0, noise.on(device), {}, generator, {}};
  Tensor latents = video.clone();
  add_noise(*clip.sampling.first_noise, noise, latents);
  return {0, latents.reshape(box.extent).on(device), {}, generator, {}};
}

DenoiseState restored_state(const SavedState& saved, const Clip& clip, const Box& box,
                            Device device) {
  DenoiseState state{saved.step,     {}, {}, TorchGenerator::restored(saved.generator), {},
                     saved.cache_sum};
  state.history.resize(static_cast<std::size_t>(saved.history));
  if (clip.sampling.decides) state.latents_before.emplace();
  DenoiseState::for_each_tensor(state, [&](const std::string& name, Tensor& tensor) {
    tensor = saved.read(name, box).on(device);
  });
  return state;
}

// The first latents of a clip that steps do not change: this rank's part, which may be empty.
// image: Conditioning::image.
Tensor held_frames(const Clip& clip, const Tensor& image, const Box& box, Device device) {
  const std::int64_t held = clip.sampling.holds_image ? clip.input->latent_frames : 0;
  const std::int64_t own = std::clamp<std::int64_t>(held - box.offset[0], 0, box.extent[0]);
  return own > 0 ? image.rows(0, own).on(device) : Tensor();
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
      branch_(branch_of(group, layout.mesh)),
      layout_(layout),
      batch_(batch),
      model_(model),
      conditioning_(conditioning.begin(), conditioning.end()),
      latents_(layout.latents.with_axis(1, batch.front().latent_channels)) {
  const Clip& first = batch.front();
  if (const auto& computed = first.sampling.computed) {
    // Processors of different kinds may round a distance to other sides of the threshold.
    computed_.assign(computed->begin(), computed->end());
    group.max(computed_);
  }
  const Box& box = own_box(latents_, branch_);
  for (std::size_t clip = 0; clip < batch.size(); ++clip) {
    held_.push_back(held_frames(batch[clip], conditioning[clip].image, box, model.device()));
    states_.push_back(saved.empty()
                          ? initial_state(batch[clip], box,
                                          video_latents.empty() ? Tensor() : video_latents[clip],
                                          model.device())
                          : restored_state(saved[clip], batch[clip], box, model.device()));
    hold(clip, states_.back().latents);
  }
  const std::int64_t last = first.sampling.sampler->calls() - 1;
  enter(expert_of(std::min(states_.front().step, last)));
  if (saved.empty() || !first.format.keeps_residual) return;
  for (std::size_t clip = 0; clip < batch.size(); ++clip) {
    const Box hidden = hidden_box(batch[clip], group.rank());
    const Shape token{numel(hidden.extent) / (hidden.extent[3] * hidden.extent[4]),
                      hidden.extent[3], hidden.extent[4]};
    prepared_->set_residual(static_cast<std::int64_t>(clip),
                            saved[clip].read(residual_name, hidden).reshape(token));
  }
}

void Denoising::hold(std::size_t clip, const Tensor& latents) {
  const Tensor& held = held_[clip];
  if (!held.empty()) latents.rows(0, held.shape(0)).copy_from(held);
}

std::vector<Tensor> Denoising::latents() const {
  std::vector<Tensor> latents;
  for (const DenoiseState& state : states_) latents.push_back(state.latents);
  return latents;
}

// The hidden states of a clip that a rank of the group has: its tokens, of its branches.
Box Denoising::hidden_box(const Clip& clip, int rank) const {
  Box box = layout_.tokens.box(layout_.branch_rank(rank));
  const std::int64_t branches = clip.hidden[3] / layout_.mesh.cfg;
  const std::int64_t half = rank / layout_.mesh.branch_ranks();
  box.offset.insert(box.offset.end(), {half * branches, 0});
  box.extent.insert(box.extent.end(), {branches, clip.hidden[4]});
  return box;
}

bool Denoising::finished() const { return states_.front().step == batch_.front().end_step(); }

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

// Of calls that leave the states as they were if they fail.
template <class Call>
void Denoising::within_memory(const Call& call) const {
  try {
    call();
  } catch (const Error& error) {
    const bool lacks = error.status() == Status::unavailable && !model_.device().only_shapes;
    if (!lacks || group_.size() > 1) throw;
    throw Interrupted(error.what());
  }
}

int Denoising::expert_of(std::int64_t step) const {
  return model_.expert(batch_.front().sampling.sampler->timestep(static_cast<int>(step)));
}

// The graphs of another expert are of no use any more, and what it has in memory makes room for
// this one.
void Denoising::enter(int expert) {
  if (expert_ == expert) return;
  const bool on_gpu = model_.device().is_cuda() && !model_.device().only_shapes;
  if (expert_ && on_gpu) synchronize(model_.device());  // steps still run
  calls_.clear();
  prepared_.reset();
  expert_.reset();
  const bool loaded = model_.use_together(expert);
  // Loading takes unequal time on the ranks, but exchanges on a device wait only so long.
  if (loaded && on_gpu) group_.barrier();
  const Clip& first = batch_.front();
  prepared_ = model_.prepare({.group = branch_,
                              .layout = layout_,
                              .latents = first.latents,
                              .branches = first.format.branches / layout_.mesh.cfg,
                              .size = first.format.size,
                              .fps = first.fps(),
                              .keeps_residual = first.format.keeps_residual},
                             conditioning_);
  expert_ = expert;
}

const std::vector<Tensor>& Denoising::predict(Blocks blocks, bool interruptible) {
  const std::vector<Tensor>* predicted = nullptr;
  within_memory([&] { predicted = &predict_together(blocks, interruptible); });
  return *predicted;
}

const std::vector<Tensor>& Denoising::predict_together(Blocks blocks, bool interruptible) {
  RepeatedCall& call =
      calls_
          .try_emplace(
              blocks, model_.device(), group_, branch_.capturable() && model_.capturable(),
              [this, blocks] { return prepared_->predict_together(latents(), time_, blocks); })
          .first->second;
  if (blocks == Blocks::reuse || !interruptible || model_.device().is_cuda()) return call();
  at_interruption_point = [this] {
    if (group_.max(stop::leaving() ? std::int64_t{1} : 0) > 0) throw Interrupted();
  };
  struct End {
    ~End() { at_interruption_point = nullptr; }
  } const end;
  return call();
}

// What a step does, with time_ set.
TeaCacheRule::Decision Denoising::decide(std::int64_t step) const {
  const SamplingRecipe& recipe = batch_.front().sampling;
  if (!computed_.empty()) return {computed_[static_cast<std::size_t>(step)] > 0, 0};
  if (!recipe.decides || step == 0 || step == recipe.sampler->calls() - 1) return {};
  const DenoiseState& state = states_.front();
  const trace::Scope scope(trace::spans::measure_change);
  const Tensor before = model_.embed(recipe.sampler->timestep(static_cast<int>(step) - 1));
  return recipe.decides->decide(
      state.cache_sum,
      prepared_->change_together({state.latents, time_}, {state.latents_before.value(), before}));
}

void Denoising::step_together(bool interruptible,
                              const std::function<void(bool finished)>& at_end) {
  const std::int64_t step = states_.front().step;
  const int i = static_cast<int>(step);
  const trace::Mark mark(&trace::Recorder::step, i);
  const Sampler& sampler = *batch_.front().sampling.sampler;  // all clips have the same timesteps
  const double timestep = sampler.timestep(i);
  within_memory([&] { enter(expert_of(step)); });
  // A CUDA graph may be replayed, so latents and timestep must stay at the same addresses.
  const Tensor time = model_.embed(timestep);
  if (time_.empty()) {
    time_ = time.clone();
  } else {
    time_.copy_from(time);
  }
  const auto [computes, cache_sum] = decide(step);
  const trace::Scope scope(computes ? trace::spans::denoise_step : trace::spans::reuse_step);
  const Blocks computing =
      batch_.front().format.keeps_residual ? Blocks::compute_and_keep : Blocks::compute;
  const Blocks blocks = computes ? computing : Blocks::reuse;
  std::vector<Predictions> predicted = all_branches(predict(blocks, interruptible));
  const Box& box = own_box(latents_, branch_);
  for (std::size_t clip = 0; clip < batch_.size(); ++clip) {
    const SamplingRecipe& recipe = batch_[clip].sampling;
    DenoiseState& state = states_[clip];
    if (recipe.decides) {
      state.cache_sum = cache_sum;
      if (state.latents_before) {
        state.latents_before->copy_from(state.latents);
      } else {
        state.latents_before = state.latents.clone();
      }
    }
    auto& [unconditional, prediction] = predicted[clip];
    if (batch_[clip].format.branches > 1) {
      recipe.guidance.apply(timestep, unconditional, prediction);
    }
    if (batch_[clip].is_left() && step + 1 == batch_[clip].end_step()) {
      previews_.push_back(
          clean_latents(recipe.sampler->clean_factors(i), prediction, state.latents));
      hold(clip, previews_.back());
    }
    recipe.sampler->step(i, prediction, state.latents, state.history, [&](std::span<float> noise) {
      draw_step_noise(recipe.noise, state.generator, latents_.global(), box.offset, box.extent,
                      noise);
    });
    hold(clip, state.latents);
    ++state.step;
  }
  if (at_end) at_end(finished());
}

std::vector<RestartArray> Denoising::state_arrays(std::size_t index) const {
  const DenoiseState& state = states_[index];
  const Clip& clip = batch_[index];
  const Layout layout = over_first_ranks(latents_, group_.size());
  std::vector<RestartArray> arrays;
  DenoiseState::for_each_tensor(state, [&](const std::string& name, const Tensor& tensor) {
    const Box& box = own_box(layout, group_);
    const Tensor own = box.empty() ? Tensor::empty(box.extent, DType::float32) : tensor.on({});
    arrays.push_back({name, {own, layout, group_}});
  });
  if (!clip.format.keeps_residual) return arrays;
  std::vector<Box> boxes;
  for (int rank = 0; rank < group_.size(); ++rank) boxes.push_back(hidden_box(clip, rank));
  const Tensor own = prepared_->residual(static_cast<std::int64_t>(index));
  const Shape& extent = boxes[static_cast<std::size_t>(group_.rank())].extent;
  arrays.push_back({residual_name, {own.reshape(extent), {clip.hidden, std::move(boxes)}, group_}});
  return arrays;
}

}  // namespace reelmesh
