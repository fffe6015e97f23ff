#include "pipeline/stages.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"
#include "pipeline/autosave.hpp"
#include "pipeline/hand_overs.hpp"
#include "tensor/memory.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::pipeline {
namespace {

comm::Group range_group(const comm::Group& world, const RankRange& range) {
  return world.range(range.first, range.count).connected();
}

// A group for each of some ranges without common ranks.
std::vector<comm::Group> range_groups(const comm::Group& world,
                                      const std::vector<RankRange>& ranges) {
  const auto mine = std::ranges::find_if(
      ranges, [&](const RankRange& range) { return range.contains(world.rank()); });
  const auto index = static_cast<std::size_t>(mine - ranges.begin());
  std::vector<comm::Group> groups(ranges.size());
  const comm::Group own =
      world.split(mine == ranges.end() ? -1 : static_cast<int>(index)).connected();
  if (mine != ranges.end()) groups[index] = own;
  return groups;
}

// Ends with a barrier on GPUs: loading takes unequal time on the ranks, but exchanges on a device
// wait for at most device.timeout.
template <class Read>
void load_on(const comm::Group& group, Device device, const Read& read) {
  if (!group.member()) return;
  {
    const trace::Scope scope(trace::spans::load);
    const PurposeScope purpose(Purpose::weights);
    read();
  }
  if (device.is_cuda()) group.barrier();
}

}  // namespace

TextStage::TextStage(const comm::Group& world, const JobPlan& planned, const Computing& computing)
    : planned_(planned),
      computing_(computing),
      group_(range_group(world, planned.plan.roles.text)),
      own_(world.split(world.rank())),
      parts_(planned.plan.device_map.stages()),
      layers_(parts_.size()) {}

void TextStage::load() {
  load_on(group_, computing_.device, [&] {
    const Checkpoint weights = computing_.weights(*planned_.family, ModelPart::text_encoder);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const DeviceMap::Stage& part = parts_[i];
      if (group_.rank() != part.rank) continue;
      WeightPlacement placement{.group = own_};
      if (part.on_host) placement.residence = Residence::host;
      layers_[i].emplace(weights, planned_.family->text_encoder(),
                         T5Part{part.first, part.last, part.embedding, part.final_norm},
                         computing_.dtype, placement);
    }
  });
}

void TextStage::release() {
  for (auto& layers : layers_) layers.reset();
  // It would leave a hole before it in the memory of the next stages.
  last_negative_.clear();
  last_negative_embedding_ = {};
}

// Passes the hidden state from part to part; each rank computes the parts that it holds.
Tensor TextStage::encode(const std::vector<std::int32_t>& ids) {
  const T5Config& encoder = planned_.family->text_encoder();
  const std::int64_t tokens = encoder.encoded_tokens(ids);
  const int me = group_.rank();
  Tensor x;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const int holder = parts_[i].rank;
    if (i > 0 && parts_[i - 1].rank != holder) {
      const int before = parts_[i - 1].rank;
      if (computing_.device
              .is_cuda()) {  // waiting on a device has a time-out, but a rank may be far behind
        if (me == before) group_.barrier_with({&holder, 1});
        if (me == holder) group_.barrier_with({&before, 1});
      }
      if (me == before) {
        const comm::Message send{holder, x};
        group_.exchange({&send, 1}, {});
      } else if (me == holder) {
        x = Tensor::empty({tokens, 1, encoder.d_model}, t5_stream(computing_.dtype),
                          computing_.device);
        const comm::Message receive{before, x};
        group_.exchange({}, {&receive, 1});
      }
    }
    if (me != holder) continue;
    const trace::Scope scope(trace::spans::encode);
    const auto text = std::span(ids).first(static_cast<std::size_t>(tokens));
    x = (*layers_[i])(i == 0 ? layers_[i]->embed(text) : x);
  }
  return me == parts_.back().rank ? with_zero_rows(x, std::ssize(ids)) : Tensor();
}

Tensor TextStage::operator()(const Clip& clip) {
  if (!group_.member()) return {};
  if (clip.texts.size() > 1 && clip.texts.front() != last_negative_) {
    last_negative_ = clip.texts.front();
    last_negative_embedding_ = encode(last_negative_);
  }
  const Tensor embedding = encode(clip.texts.back());
  if (group_.rank() != parts_.back().rank) return {};
  std::vector<Tensor> all{embedding};
  if (clip.texts.size() > 1) all.insert(all.begin(), last_negative_embedding_);
  return ops::join_batches(all);
}

DenoiseStage::DenoiseStage(const comm::Group& world, const JobPlan& planned,
                           const Computing& computing, const Job& job)
    : planned_(planned),
      plan_(&planned.plan),
      computing_(computing),
      job_(job),
      groups_(range_groups(world, planned.plan.roles.denoise)) {}

void DenoiseStage::regroup(const comm::Group& world, const Plan& plan) {
  plan_ = &plan;
  groups_ = range_groups(world, plan.roles.denoise);
}

void DenoiseStage::load() {
  for (std::size_t replica = 0; replica < groups_.size(); ++replica) {
    const comm::Group& group = groups_[replica];
    const WeightPlan& weights = plan_->weights;
    const WeightPlacement placement{
        .residence = weights.residence,
        .group = group,
        .shares = weights.shares.empty() ? RankWeights{} : weights.shares[replica],
        .unlike_processors = planned_.unlike_processors,
        .resident = weights.resident,
        .experts_in_turn = plan_->memory.experts_in_turn};
    load_on(group, computing_.device, [&] {
      const Family& family = *planned_.family;
      const auto open = [computing = computing_, &family](ModelPart part) {
        return computing.weights(family, part);
      };
      model_ = family.denoiser(open, computing_.dtype, placement, family.layers());
    });
  }
}

Denoised DenoiseStage::operator()(const Batch& batch, std::size_t replica,
                                  std::span<const Conditioning> conditioning,
                                  std::span<const Tensor> video_latents,
                                  const std::function<void(bool finished)>& at_end,
                                  const std::function<bool()>& after_step,
                                  Failures& failures) const {
  const comm::Group& group = groups_[replica];
  Denoised result;
  result.failed.resize(batch.size());
  if (!group.member()) {
    result.saved.resize(batch.size());
    result.latents.resize(batch.size());
    return result;
  }
  const Clip& first = batch.front();
  const DenoiseLayout& layout = planned_.clip_plan(first, *plan_).denoise[replica];
  const std::int64_t text_channels = planned_.family->text_encoder().d_model;
  std::vector<RestartFile> files;
  std::vector<SavedState> saved;
  for (const Clip& clip : batch) {
    if (clip.saved_step > 0) files.push_back(open_restart(job_, clip, text_channels));
  }
  for (const RestartFile& file : files) saved.push_back(saved_state(file));

  Denoising denoising(group, layout, batch, conditioning, *model_, saved, video_latents);
  Autosave autosave(job_.output, job_.restart, group, layout, batch, conditioning, text_channels);
  const auto all_failed = [&] {
    return std::ranges::all_of(result.failed, [](bool failed) { return failed; });
  };
  while (!denoising.finished() && !result.stopped && !all_failed()) {
    try {
      denoising.step_together(autosave.steps_are_long(), at_end);
      const bool enough = after_step();
      result.stopped = autosave.agree_after_step(denoising, enough);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const int failed_on = autosave.failed_on()[i];
        if (!result.failed[i] && failed_on == group.rank()) {
          failures.add(batch[i].index(),
                       fmt::format("the latents after step {} of {}", denoising.states()[i].step,
                                   batch[i].sampling.sampler->calls()));
        }
        result.failed[i] = failed_on >= 0;
      }
    } catch (const Interrupted& interrupted) {
      result.lack = interrupted.lack();
      autosave.save_together(denoising);
      result.stopped = true;
    }
  }
  result.saved = autosave.saved();
  if (result.stopped) return result;
  const Layout kept = layout.latents.cropped(0, first.dropped_frames, first.latents[0]);
  const std::int64_t frames = kept.box(layout.branch_rank(group.rank())).extent[0];
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Tensor& latents = denoising.result(i);
    result.latents.push_back(latents.rows(latents.shape(0) - frames, frames).on({}));
  }
  return result;
}

DecodeStage::DecodeStage(const comm::Group& world, const JobPlan& planned,
                         const Computing& computing)
    : planned_(planned),
      plan_(&planned.plan),
      computing_(computing),
      groups_(range_groups(world, planned.plan.roles.decode)) {}

void DecodeStage::regroup(const comm::Group& world, const Plan& plan) {
  plan_ = &plan;
  groups_ = range_groups(world, plan.roles.decode);
}

void DecodeStage::load() {
  for (const comm::Group& group : groups_) {
    load_on(group, computing_.device, [&] {
      const Family& family = *planned_.family;
      decoder_ = family.decoder(computing_.weights(family, ModelPart::vae), computing_.dtype);
    });
  }
}

std::optional<Sharded> DecodeStage::operator()(const Clip& clip, std::size_t decoder,
                                               const Tensor& latents, Failures& failures) const {
  const comm::Group& group = this->group(decoder);
  if (!group.member()) return std::nullopt;
  const trace::Scope scope(trace::spans::decode);
  const DecodeLayout& layout = planned_.clip_plan(clip, *plan_).decode[decoder];
  const DecodedVideo video =
      decoder_->pixels({latents, layout.latents.with_axis(1, clip.latent_channels), group}, layout);
  const int failed_on = found_on(group.max(vote_if(!video.finite, group)), group);
  if (failed_on < 0) return video.pixels;
  if (failed_on == group.rank()) failures.add(clip.index(), "the decoded video");
  return std::nullopt;
}

void InputStage::load() {
  for (const comm::Group& group : decoding_.groups()) {
    load_on(group, computing_.device, [&] {
      const Family& family = *planned_.family;
      encoder_ = family.encoder(computing_.weights(family, ModelPart::vae), computing_.dtype);
      if (group.rank() != 0 || !family.vision_pixels()) return;
      vision_ = family.vision_encoder(computing_.weights(family, ModelPart::image_encoder),
                                      computing_.dtype);
    });
  }
}

EncodedInput InputStage::operator()(const Clip& clip, std::size_t decoder) const {
  const comm::Group& group = decoding_.group(decoder);
  if (!group.member()) return {};
  const ClipInput& input = *clip.input;
  const Layout cut = encoded_layout(decoding_.clip_plan(clip), decoder, clip);
  const Layout pixels = encoded_pixels(clip, encoder_->frames_of(cut, input.encoded_frames));
  const trace::Scope scope(input.file.kind == InputKind::image ? trace::spans::encode_image
                                                               : trace::spans::encode_video);
  Encoder::DrawNoise draw;
  if (input.noise) {  // the clip's generator draws this noise before all others
    draw = [&](std::span<float> noise) {
      TorchGenerator generator(clip.seed());
      const Box own = own_box(cut.with_axis(1, clip.latent_channels), group);
      draw_initial_noise(*input.noise, generator, clip.input_shape(), own.offset, own.extent,
                         noise);
    };
  }
  EncodedInput encoded;
  {
    const Tensor read =
        read_pixels(input, planned_.inputs, clip.format.size, own_box(pixels, group));
    encoded.latents = encoder_->sample({read, pixels, group}, cut, input.scale, draw);
  }
  if (vision_) encoded.vision = embed(clip);
  return encoded;
}

// The rows of the first image, then those of the last one.
Tensor InputStage::embed(const Clip& clip) const {
  const VisionPixels pixels = planned_.family->vision_pixels().value();
  std::vector<Tensor> rows;
  for (const InputFile* file : {&clip.input->file, &clip.input->last}) {
    if (file->kind == InputKind::none) continue;
    rows.push_back(
        vision_->embed(read_vision_pixels(*file, planned_.inputs.at(file->path), pixels)));
  }
  return ops::join_rows(rows);
}

namespace {

std::size_t index_of(Stage stage) { return static_cast<std::size_t>(stage); }

}  // namespace

Stages::Stages(const comm::Group& world, const Job& job, const JobPlan& planned, Device device)
    : encode(world, planned, {job.dtype, job.numerics, device}),
      denoise_batch(world, planned, {job.dtype, job.numerics, device}, job),
      decode_clip(world, planned, {job.dtype, job.numerics, device}),
      encode_input(planned, {job.dtype, job.numerics, device}, decode_clip),
      plan_(planned.plan),
      keeps_video_(job.keep_video) {}

void Stages::load(Stage stage) {
  switch (stage) {
    case Stage::text:
      return encode.load();
    case Stage::input:
      return encode_input.load();
    case Stage::denoise:
      return denoise_batch.load();
    case Stage::decode:
      return keeps_video_ ? decode_clip.load() : void();
  }
}

void Stages::release(Stage stage) {
  loaded_[index_of(stage)] = false;
  switch (stage) {
    case Stage::text:
      return encode.release();
    case Stage::input:
      return encode_input.release();
    case Stage::denoise:
      return denoise_batch.release();
    case Stage::decode:
      return decode_clip.release();
  }
}

bool Stages::stays(Stage other, Stage entered) const {
  if (other == entered) return true;
  if (other == Stage::text || entered == Stage::text || plan_.memory.offloads) return false;
  if (other == Stage::input || entered == Stage::input) {
    return plan_.roles.mode == Mode::split && !plan_.memory.unloads_decoder &&
           (other == Stage::decode || entered == Stage::decode);
  }
  return other == Stage::denoise || !plan_.memory.unloads_decoder;
}

void Stages::enter(Stage stage) {
  if (entered_ == stage) return;
  entered_ = stage;
  for (const Stage other : {Stage::text, Stage::input, Stage::denoise, Stage::decode}) {
    if (!stays(other, stage)) release(other);
  }
  release_free_memory();
  bool loads = false;
  for (const Stage other : {Stage::text, Stage::input, Stage::denoise, Stage::decode}) {
    const bool together =
        plan_.roles.mode != Mode::split && stays(other, stage) && stays(stage, other);
    const bool needed = other == stage || together;
    if (!needed || loaded_[index_of(other)]) continue;
    load(other);
    loaded_[index_of(other)] = loads = true;
  }
  if (loads) release_free_memory();  // of the unpacked copies of weights
}

void Stages::leave_input() {
  release(Stage::input);
  if (entered_ == Stage::input) entered_.reset();
  release_free_memory();
}

}  // namespace reelmesh::pipeline
