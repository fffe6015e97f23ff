#include "pipeline/clip_maker.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/stop.hpp"
#include "comm/group_values.hpp"
#include "ops/pointwise.hpp"
#include "pipeline/autosave.hpp"
#include "pipeline/hand_overs.hpp"
#include "plan/describe.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::pipeline {
namespace {

// The embedding of one text from [token, text, channel], as float32 [token, channel].
Tensor text_embedding(const Tensor& embeddings, std::int64_t text) {
  const std::int64_t tokens = embeddings.shape(0), texts = embeddings.shape(1);
  const std::int64_t channels = embeddings.shape(2);
  const Tensor values = embeddings.to(DType::float32).reshape({tokens * texts, channels});
  Tensor out = Tensor::empty({tokens, channels}, DType::float32);
  for (std::int64_t t = 0; t < tokens; ++t) {
    out.rows(t, 1).copy_from(values.rows(t * texts + text, 1));
  }
  return out;
}

// The clips of all ranks, on each. Collective.
std::vector<int> gather_clips(const comm::Group& world, const std::vector<int>& own) {
  std::vector<int> all;
  for (const std::vector<int>& clips : comm::all_gather_values(world, own)) {
    all.insert(all.end(), clips.begin(), clips.end());
  }
  return all;
}

}  // namespace

std::vector<std::size_t> BatchState::not_failed() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (!failed[i]) indices.push_back(i);
  }
  return indices;
}

void BatchState::release_encoded() {
  std::ranges::fill(embeddings, Tensor());
  std::ranges::fill(inputs, Tensor());
  std::ranges::fill(vision, Tensor());
}

void BatchState::release() {
  clips = {};
  embeddings = inputs = vision = video_latents = latents = {};
  conditioning = {};
}

ClipMaker::ClipMaker(const Job& job, const JobPlan& planned, const comm::Group& world,
                     Device device, std::vector<BatchOutline> batches, TraceWriter* traces,
                     StepTrial* trial, MemoryWatch* memory)
    : job_(job),
      planned_(planned),
      plan_(&planned.plan),
      world_(world),
      traces_(traces),
      trial_(trial),
      memory_(memory),
      channels_(planned.family->text_encoder().d_model),
      failures_(job.strict),
      stages_(world, job, planned, device),
      text_vote_(stages_.encode.group()) {
  batches_ = std::move(batches);
}

// A batch with its clips and room for their tensors.
BatchState& ClipMaker::opened(std::size_t index) {
  BatchState& batch = states_[index];
  if (!batch.clips.empty()) return batch;
  for (const ClipOutline& clip : batches_[index]) batch.clips.push_back(planned_.clip(job_, clip));
  const std::size_t size = batch.clips.size();
  batch.failed.resize(size);
  batch.embeddings.resize(size);
  batch.inputs.resize(size);
  batch.vision.resize(size);
  batch.conditioning.resize(size);
  batch.video_latents.resize(size);
  batch.latents.resize(size);
  return batch;
}

void ClipMaker::release_embeddings(std::size_t index) {
  const auto batch = states_.find(index);
  if (batch != states_.end()) batch->second.release_encoded();
}

void ClipMaker::release(std::size_t index) {
  const auto batch = states_.find(index);
  if (batch == states_.end()) return;
  batch->second.release();
  if (std::ranges::find(batch->second.failed, true) == batch->second.failed.end()) {
    states_.erase(batch);
  }
}

bool ClipMaker::needs_text(std::size_t batch) const {
  return batches_[batch].front().saved_step == 0;
}

bool ClipMaker::needs_input(std::size_t batch) const {
  return needs_text(batch) && planned_.kinds[batches_[batch].front().kind].input.has_value();
}

std::int64_t ClipMaker::embedding_bytes(std::size_t batch) const {
  std::int64_t bytes = 0;
  for (const ClipOutline& clip : batches_[batch]) {
    bytes += planned_.embedding_bytes(clip, job_.dtype);
  }
  return bytes;
}

void ClipMaker::begin_tail() {
  plan_ = &*planned_.tail;
  stages_.denoise_batch.regroup(world_, *plan_);
  stages_.decode_clip.regroup(world_, *plan_);
}

bool ClipMaker::encode(std::size_t index) {
  BatchState& batch = opened(index);
  for (std::size_t i = 0; i < batch.clips.size(); ++i) {
    const Clip& clip = batch.clips[i];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    if (text_vote_.stop_together()) return false;
    // They wait on the host: a job may have thousands of prompts.
    const Tensor embeddings = stages_.encode(clip);
    {
      const PurposeScope purpose(Purpose::queue);
      batch.embeddings[i] = embeddings.device().is_cuda() ? embeddings.on({}) : embeddings.clone();
    }
    if (ops::all_finite(batch.embeddings[i])) continue;  // also where they are on another rank
    failures_.add(clip.index(), "the text embeddings");
    batch.failed[i] = true;
  }
  return true;
}

// Encoded inputs on their way to plan().embeddings_rank(). Where they come from, the batch may be
// released before.
class ClipMaker::PendingInputs final : public PendingHandOver {
 public:
  PendingInputs(ClipMaker& maker, std::size_t batch) : maker_(maker), batch_(batch) {}
  void add(std::size_t clip, int number, HandOver latents, std::optional<HandOver> vision) {
    sent_.push_back({clip, number, std::move(latents), std::move(vision)});
  }

  void finish() override {
    const bool receives = maker_.world_.rank() == maker_.plan_->embeddings_rank();
    for (Sent& sent : sent_) {
      const trace::Mark mark(&trace::Recorder::clip, sent.number);
      const trace::Scope scope(trace::spans::handover);
      const Tensor input = sent.latents.finish();
      const Tensor vision = sent.vision ? sent.vision->finish() : Tensor();
      if (!receives) continue;
      BatchState& batch = maker_.states_.at(batch_);
      batch.inputs[sent.clip] = input;
      batch.vision[sent.clip] = vision;
      const bool has_latents = ops::all_finite(input);
      if (batch.failed[sent.clip] || (has_latents && (vision.empty() || ops::all_finite(vision)))) {
        continue;
      }
      const InputKind kind = batch.clips[sent.clip].format.input;
      maker_.failures_.add(
          sent.number, fmt::format("the {} of the {}", has_latents ? "encoder's rows" : "latents",
                                   name_of(kind)));
      batch.failed[sent.clip] = true;
    }
    if (!receives) maker_.release(batch_);
  }

 private:
  struct Sent {
    std::size_t clip;  // in the batch
    int number;        // in the job
    HandOver latents;
    std::optional<HandOver> vision;
  };
  ClipMaker& maker_;
  std::size_t batch_;
  std::vector<Sent> sent_;
};

std::unique_ptr<PendingHandOver> ClipMaker::encode_inputs(std::size_t index, std::size_t first,
                                                          std::size_t decoders) {
  BatchState& batch = opened(index);
  auto inputs = std::make_unique<PendingInputs>(*this, index);
  for (std::size_t i = 0; i < batch.clips.size(); ++i) {
    const std::size_t decoder = (first + i) % decoders;
    const bool encodes = stages_.decode_clip.group(decoder).member();
    if (!encodes && world_.rank() != plan_->embeddings_rank()) continue;
    const Clip& clip = batch.clips[i];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const EncodedInput encoded = stages_.encode_input(clip, decoder);
    const PurposeScope purpose(Purpose::queue);
    HandOver latents(world_, key(MessageKey::Kind::encoded_input, index, clip), encoded.latents,
                     input_to_queue(*plan_, clip_plan(clip), decoder, clip), DType::float32);
    std::optional<HandOver> vision;
    if (!clip.vision.empty()) {
      vision.emplace(world_, key(MessageKey::Kind::image_rows, index, clip), encoded.vision,
                     vision_to_queue(*plan_, decoder, clip), job_.dtype);
    }
    inputs->add(i, clip.index(), std::move(latents), std::move(vision));
  }
  return inputs;
}

// input: this rank's box of the encoded input of a clip; vision: rows of the vision encoder.
void ClipMaker::take_input(BatchState& batch, std::size_t clip, std::size_t replica,
                           const Tensor& input, const Tensor& vision) const {
  if (batch.clips[clip].format.input == InputKind::video) {
    batch.video_latents[clip] = input;
    return;
  }
  const comm::Group& group = stages_.denoise_batch.group(replica);
  const DenoiseLayout& layout = clip_plan(batch.clips[clip]).denoise[replica];
  const Box own = layout.latents.with_axis(1, batch.clips[clip].latent_channels)
                      .box(layout.branch_rank(group.rank()));
  Tensor image = Tensor::zeros(own.extent, DType::float32);
  if (!input.empty()) {
    Tensor frames = image.rows(0, input.shape(0));
    frames.copy_from(input);
  }
  Conditioning& conditioning = batch.conditioning[clip];
  conditioning.image = image;
  conditioning.ends_with_image = batch.clips[clip].input->ends_with_image();
  conditioning.vision = vision;
}

void ClipMaker::hand_over_text(std::size_t index, std::size_t replica) {
  BatchState& batch = opened(index);
  const comm::Group& group = stages_.denoise_batch.group(replica);
  for (const std::size_t i : batch.not_failed()) {
    const Clip& clip = batch.clips[i];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const trace::Scope scope(trace::spans::handover);
    const PurposeScope purpose(Purpose::queue);
    const Move move = embeddings_to_denoising(*plan_, clip_plan(clip), replica, clip, channels_);
    const Tensor text = HandOver(world_, key(MessageKey::Kind::embeddings, index, clip),
                                 batch.embeddings[i], move, job_.dtype)
                            .finish();
    Tensor input, vision;
    if (clip.input) {
      const Move from_queue = input_to_denoising(*plan_, clip_plan(clip), replica, clip);
      input = HandOver(world_, key(MessageKey::Kind::input, index, clip), batch.inputs[i],
                       from_queue, DType::float32)
                  .finish();
    }
    if (!clip.vision.empty()) {
      vision = HandOver(world_, key(MessageKey::Kind::input_rows, index, clip), batch.vision[i],
                        vision_to_denoising(*plan_, replica, clip), job_.dtype)
                   .finish();
    }
    if (!group.member()) continue;
    batch.conditioning[i] = {.text = text, .image = {}, .vision = {}};
    if (clip.input) take_input(batch, i, replica, input, vision);
  }
}

// Restart files have the embeddings and images of their clips.
void ClipMaker::read_conditioning(BatchState& batch, std::size_t replica) const {
  const comm::Group& group = stages_.denoise_batch.group(replica);
  for (std::size_t i = 0; group.member() && i < batch.clips.size(); ++i) {
    const Clip& clip = batch.clips[i];
    const Move from_text =
        embeddings_to_denoising(*plan_, clip_plan(clip), replica, clip, channels_);
    const Box& box = own_box(from_text.to, group);
    Tensor text = Tensor::empty(box.extent, job_.dtype);
    if (!box.empty()) text = open_restart(job_, clip, channels_).read("embeddings", box);
    batch.conditioning[i] = {.text = text.to(job_.dtype), .image = {}, .vision = {}};
    if (clip.format.input != InputKind::image) continue;
    const Move from_queue = input_to_denoising(*plan_, clip_plan(clip), replica, clip);
    const Box& part = own_box(from_queue.to, group);
    Tensor image = Tensor::empty(part.extent, DType::float32);
    if (!part.empty()) image = open_restart(job_, clip, channels_).read("image_latents", part);
    Tensor vision;
    if (!clip.vision.empty()) {
      vision = open_restart(job_, clip, channels_)
                   .read("image_rows", whole_box(clip.vision))
                   .to(job_.dtype);
    }
    take_input(batch, i, replica, image, vision);
  }
}

bool ClipMaker::denoise(std::size_t index, std::size_t replica,
                        const std::function<void()>& after_step) {
  BatchState& batch = opened(index);
  if (!needs_text(index)) read_conditioning(batch, replica);
  const std::vector<std::size_t> indices = batch.not_failed();
  if (indices.empty()) return true;
  Batch clips;
  std::vector<Conditioning> conditioning;
  std::vector<Tensor> video_latents;
  for (const std::size_t i : indices) {
    clips.push_back(batch.clips[i]);
    conditioning.push_back(batch.conditioning[i]);
    video_latents.push_back(batch.video_latents[i]);
  }
  const trace::Mark mark(&trace::Recorder::clip, clips.front().index());
  const bool first_rank = stages_.denoise_batch.group(replica).rank() == 0;
  const auto at_end = [&](bool finished) { watch(finished ? Stage::decode : Stage::denoise); };
  const auto on_step = [&] {
    trace::Recorder& recorder = trace::recorder();
    if (first_rank) recorder.clip_steps = recorder.clip_steps + std::ssize(clips);
    after_step();
    return trial_ != nullptr && trial_->enough_after_step();
  };
  Denoised denoised = stages_.denoise_batch(clips, replica, conditioning, video_latents, at_end,
                                            on_step, failures_);
  if (!denoised.lack.empty()) {
    require(memory_ != nullptr, Status::unavailable, "{}", denoised.lack);
    memory_->note_failed_step(denoised.lack);
  }
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (first_rank && denoised.saved[i]) saved_.push_back(clips[i].index());
    batch.failed[indices[i]] = denoised.failed[i];
    if (!denoised.stopped) batch.latents[indices[i]] = denoised.latents[i];
  }
  return !denoised.stopped;
}

// Latents of a batch, and its embeddings if they are written, on their way to a decoder.
class ClipMaker::PendingLatents final : public PendingHandOver {
 public:
  std::vector<HandOver> latents, embeddings;  // per clip of not_failed()
  void finish() override {
    for (HandOver& hand_over : latents) hand_over.finish();
    for (HandOver& hand_over : embeddings) hand_over.finish();
  }
};

std::unique_ptr<PendingHandOver> ClipMaker::hand_over_latents(std::size_t index,
                                                              std::size_t replica,
                                                              std::size_t decoder) {
  BatchState& batch = opened(index);
  auto pending = std::make_unique<PendingLatents>();
  for (const std::size_t i : batch.not_failed()) {
    const Clip& clip = batch.clips[i];
    const ClipPlan& size = clip_plan(clip);
    pending->latents.emplace_back(
        world_, key(MessageKey::Kind::latents, index, clip), batch.latents[i],
        latents_to_decoding(*plan_, size, replica, decoder, clip), DType::float32);
    if (!job_.keep_embeddings) continue;
    pending->embeddings.emplace_back(
        world_, key(MessageKey::Kind::written_embeddings, index, clip), batch.conditioning[i].text,
        embeddings_to_writing(*plan_, size, replica, decoder, clip, channels_), job_.dtype);
  }
  return pending;
}

void ClipMaker::decode(std::size_t index, std::size_t decoder,
                       std::unique_ptr<PendingHandOver> sent) {
  const comm::Group& group = stages_.decode_clip.group(decoder);
  if (!group.member()) return sent->finish();
  auto& pending = dynamic_cast<PendingLatents&>(*sent);
  const BatchState& batch = states_.at(index);
  const std::vector<std::size_t> indices = batch.not_failed();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const Clip& clip = batch.clips[indices[i]];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const Layout& cut = clip_plan(clip).decode[decoder].latents;
    Sharded latents{{}, cut.with_axis(1, clip.latent_channels), group};
    Tensor embeddings;
    {
      const trace::Scope scope(trace::spans::handover);
      latents.local = pending.latents[i].finish();
      if (job_.keep_embeddings) embeddings = pending.embeddings[i].finish();
    }
    std::optional<Sharded> video = Sharded{};
    if (job_.keep_video) video = stages_.decode_clip(clip, decoder, latents.local, failures_);
    if (video) write(clip, decoder, latents, *video, embeddings);
  }
}

// Called on the ranks of the decoding group. wall_seconds of a clip: since the previous clip was
// written (or the start).
void ClipMaker::write(const Clip& clip, std::size_t decoder, const Sharded& latents,
                      const Sharded& video, const Tensor& embeddings) {
  const trace::Scope scope(trace::spans::write);
  const stop::UnsavedWork unsaved;
  const comm::Group& group = stages_.decode_clip.group(decoder);
  ClipRecord record = clip.record;
  record.layout = plan_text(describe_layout(*plan_, planned_.size_index(clip)));
  const std::int64_t now = trace::now_ns();
  record.wall_seconds = group.max(static_cast<double>(now - last_written_) * 1e-9);
  last_written_ = now;
  ClipArrays arrays;
  if (job_.keep_video) arrays.video = video;
  if (job_.keep_latents) arrays.latents = latents;
  if (job_.keep_embeddings) {
    const Layout layout = Layout::cut({clip.tokens(), channels_}, 0, group.size());
    const auto text = [&](std::int64_t i) {
      return Sharded{text_embedding(embeddings, i), layout, group};
    };
    const std::int64_t texts = std::ssize(clip.texts);  // the prompt is the last
    arrays.prompt_embeds = text(texts - 1);
    if (texts > 1) arrays.negative_prompt_embeds = text(0);
  }
  const bool is_left = clip.is_left();
  write_clip(group, job_.output, record, arrays, job_.if_exists != IfExists::fail,
             is_left ? std::optional(clip.end_step()) : std::nullopt);
  if (group.rank() != 0) return;
  (is_left ? previews_ : written_).push_back(clip.index());
  if (!is_left) remove_restart(job_.output, clip.index());
}

MadeClips ClipMaker::finish_together(bool complete) {
  return {complete, failures_.of_all(world_), gather_clips(world_, written_),
          gather_clips(world_, saved_), gather_clips(world_, previews_)};
}

}  // namespace reelmesh::pipeline
