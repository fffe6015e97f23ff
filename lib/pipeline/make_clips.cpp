#include "pipeline/make_clips.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/progress.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"
#include "ops/pointwise.hpp"
#include "pipeline/hand_overs.hpp"
#include "pipeline/restart.hpp"
#include "pipeline/stages.hpp"

namespace reelmesh::pipeline {
namespace {

// The embedding of one text from [token, text, channel], as float32 [token, channel].
Tensor text_of(const Tensor& embeddings, std::int64_t text) {
  const std::int64_t tokens = embeddings.shape(0), texts = embeddings.shape(1);
  const std::int64_t channels = embeddings.shape(2);
  const Tensor values = embeddings.to(DType::float32).reshape({tokens * texts, channels});
  Tensor out = Tensor::empty({tokens, channels}, DType::float32);
  for (std::int64_t t = 0; t < tokens; ++t) {
    out.rows(t, 1).copy_from(values.rows(t * texts + text, 1));
  }
  return out;
}

// A batch between the stages, with this rank's part of the tensors of each of its clips.
struct BatchState {
  Batch clips;
  std::size_t replica = 0;
  // Agreed by the ranks of two stages when the batch passes from one to the other: its remaining
  // stages are left out.
  bool stopped = false;
  std::vector<bool> failed;        // likewise, per clip
  std::vector<Tensor> embeddings;  // after encoding
  std::vector<Conditioning> conditioning;
  std::vector<Tensor> latents;  // after denoising

  /// Whether the text encoder is needed; otherwise restart files have the embeddings.
  bool needs_text() const { return clips.front().saved_step == 0; }
  /// The clips that have not failed, by their places in `clips`.
  std::vector<std::size_t> in_work() const {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < clips.size(); ++i) {
      if (!failed[i]) places.push_back(i);
    }
    return places;
  }
};

// Consecutive parts of `size` elements; the last one may be shorter.
template <class T>
std::vector<std::span<T>> in_parts(std::span<T> all, std::size_t size) {
  std::vector<std::span<T>> parts;
  for (; !all.empty(); all = all.subspan(parts.back().size())) {
    parts.push_back(all.first(std::min(size, all.size())));
  }
  return parts;
}

// Whether a job is to stop, agreed by the ranks of a group. Asked before each piece of a long
// series of work, it exchanges messages only about every 5 s, so that ranks that pass work on to
// each other need not wait for the slowest.
class PacedVote {
 public:
  explicit PacedVote(const comm::Group& group) : group_(group) {}

  bool stop() {
    if (stopped_ || --left_ > 0) return stopped_;
    const std::int64_t now = trace::now_ns();
    std::array<std::int64_t, 2> votes{stop::requested() ? 1 : 0, now - last_};
    group_.max(votes);
    constexpr std::int64_t interval_ns = 5'000'000'000;
    const std::int64_t piece = std::max<std::int64_t>(votes[1] / interval_, 1);
    left_ = interval_ =
        std::clamp<std::int64_t>(interval_ns / piece, group_.size(), std::int64_t{1000});
    last_ = now;
    return stopped_ = votes[0] > 0;
  }

 private:
  comm::Group group_;
  bool stopped_ = false;
  std::int64_t interval_ = 1, left_ = 1;  // pieces
  std::int64_t last_ = trace::now_ns();
};

// The ranks of two stages; `world` if these are all.
comm::Group ranks_of_both(const comm::Group& world, const RankRange& a, const RankRange& b) {
  const auto in = [&](const RankRange& range) {
    return world.rank() >= range.first && world.rank() < range.first + range.count;
  };
  return world.split(in(a) || in(b) ? 0 : -1);
}

class ClipMaker {
 public:
  ClipMaker(const Job& job, const JobPlan& planned, const comm::Group& world, Device device)
      : job_(job),
        planned_(planned),
        world_(world),
        device_(device),
        channels_(planned.family->text_encoder().d_model),
        failures_(job.strict),
        stages_(world, job, planned, device),
        text_vote_(stages_.encode.group()) {
    const Roles& roles = planned.plan.roles;
    for (const RankRange& denoise : roles.denoise) {
      text_and_denoise_.push_back(ranks_of_both(world, roles.text, denoise));
      denoise_and_decode_.push_back(ranks_of_both(world, denoise, roles.decode));
    }
  }

  MadeClips run(std::vector<BatchState>& batches);

 private:
  bool stop_all();
  void agree(const comm::Group& ranks, BatchState& batch) const;
  void encode(BatchState& batch);
  void condition(BatchState& batch);
  void denoise(BatchState& batch, Progress& progress);
  void decode(BatchState& batch);
  Tensor move(const Tensor& x, const Move& move, DType dtype, Device device) const;
  void write(const Clip& clip, const Sharded& latents, const Sharded& video,
             const Tensor& embeddings);

  const Job& job_;
  const JobPlan& planned_;
  comm::Group world_;
  Device device_;
  std::int64_t channels_;  // of embeddings
  Failures failures_;
  Stages stages_;
  PacedVote text_vote_;
  std::vector<comm::Group> text_and_denoise_, denoise_and_decode_;  // per replica
  bool stopped_ = false;
  std::int64_t last_written_ = trace::now_ns();
};

// In phased mode, where all ranks do one stage after the other: whether all of them leave now.
bool ClipMaker::stop_all() {
  if (planned_.plan.roles.mode == Mode::phased) {
    stopped_ = world_.max(std::int64_t{stopped_ || stop::requested() ? 1 : 0}) > 0;
    return stopped_;
  }
  return false;
}

// Before a batch is handed over between the ranks of two stages: whether it goes on, and which of
// its clips.
void ClipMaker::agree(const comm::Group& ranks, BatchState& batch) const {
  if (!ranks.member()) return;
  std::vector<std::int64_t> votes{batch.stopped || stop::requested() ? 1 : 0};
  votes.insert(votes.end(), batch.failed.begin(), batch.failed.end());
  ranks.max(votes);
  batch.stopped = votes.front() > 0;
  std::copy(votes.begin() + 1, votes.end(), batch.failed.begin());
}

// prompts → embeddings → latents → video → files, the same code on every rank. In split mode a
// round is one batch, so that clips stream through the stages; in phased mode it is all batches,
// encoded before any is denoised. Replicas denoise batches side by side; then their clips are
// decoded one after the other.
MadeClips ClipMaker::run(std::vector<BatchState>& batches) {
  const Roles& roles = planned_.plan.roles;
  const std::size_t replicas = roles.denoise.size();
  std::int64_t steps = 0;  // of the first replica, whose first rank shows the progress
  for (std::size_t i = 0; i < batches.size(); i += replicas) steps += steps_of(batches[i].clips);
  Progress progress("denoising", steps, "step",
                    Progress::standard_error(world_.rank() == roles.denoise.front().first));
  progress.pause();

  const std::size_t round_size = roles.mode == Mode::split ? 1 : batches.size();
  for (const auto round : in_parts(std::span(batches), round_size)) {
    if (stop_all()) break;
    if (std::ranges::any_of(round, &BatchState::needs_text)) stages_.enter(Stages::text);
    for (BatchState& batch : round) encode(batch);
    if (stop_all()) break;
    stages_.enter(Stages::denoise);
    for (BatchState& batch : round) condition(batch);
    for (const auto wave : in_parts(round, replicas)) {
      if (stop_all()) break;
      stages_.enter(Stages::denoise);
      progress.resume();
      for (BatchState& batch : wave) denoise(batch, progress);
      progress.pause();
      if (stop_all()) break;
      stages_.enter(Stages::decode);
      for (BatchState& batch : wave) {
        decode(batch);
        stopped_ = stopped_ || batch.stopped;
        batch = {};
      }
    }
  }
  stopped_ = world_.max(std::int64_t{stopped_ ? 1 : 0}) > 0;
  if (!stopped_) progress.finish();
  return {!stopped_, failures_.of_all(world_)};
}

void ClipMaker::encode(BatchState& batch) {
  if (!batch.needs_text()) return;
  for (std::size_t i = 0; i < batch.clips.size(); ++i) {
    const Clip& clip = batch.clips[i];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    if (stages_.encode.group().member() && text_vote_.stop()) {
      batch.stopped = true;
      return;
    }
    // They wait on the host: a job may have thousands of prompts.
    batch.embeddings.push_back(stages_.encode(clip).on({}));
    const Tensor& embeddings = batch.embeddings.back();
    if (embeddings.empty()) continue;  // on another rank
    ops::FiniteCheck check(embeddings.device());
    check.add(embeddings);
    if (check.finite()) continue;
    failures_.add(clip.index(), "the text embeddings");
    batch.failed[i] = true;
  }
}

Tensor ClipMaker::move(const Tensor& x, const Move& move, DType dtype, Device device) const {
  const trace::Scope scope("handover", trace::Level::stages, "exchange");
  return hand_over(world_, x, move, dtype, device);
}

void ClipMaker::condition(BatchState& batch) {
  agree(text_and_denoise_[batch.replica], batch);
  if (batch.stopped) return;
  const comm::Group& group = stages_.denoise_batch.group(batch.replica);
  batch.conditioning.resize(batch.clips.size());
  for (const std::size_t i : batch.in_work()) {
    const Clip& clip = batch.clips[i];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const Move from_text = embeddings_to_denoising(planned_.plan, planned_.plan_of(clip),
                                                   batch.replica, clip, channels_);
    if (!batch.needs_text()) {  // its restart file has the embeddings
      const Box box = group.member() ? own_box(from_text.to, group) : Box{{0, 0, 0}, {0, 0, 0}};
      Tensor text = Tensor::empty(box.extent, job_.dtype);
      if (!box.empty()) text = open_restart(job_, clip, channels_).read("embeddings", box);
      batch.conditioning[i] = {text.to(job_.dtype)};
      continue;
    }
    const Tensor encoded = std::exchange(batch.embeddings[i], {});
    batch.conditioning[i] = {move(encoded, from_text, job_.dtype, {})};
  }
}

void ClipMaker::denoise(BatchState& batch, Progress& progress) {
  if (batch.stopped) return;
  const std::vector<std::size_t> places = batch.in_work();
  batch.latents.resize(batch.clips.size());
  if (places.empty()) return;
  Batch clips;
  std::vector<Conditioning> conditioning;
  for (const std::size_t i : places) {
    clips.push_back(batch.clips[i]);
    conditioning.push_back(batch.conditioning[i]);
  }
  const trace::Mark mark(&trace::Recorder::clip, clips.front().index());
  Denoised denoised = stages_.denoise_batch(
      clips, batch.replica, conditioning, [&] { progress.advance(std::ssize(clips)); }, failures_);
  batch.stopped = denoised.stopped;
  for (std::size_t i = 0; i < places.size(); ++i) {
    batch.failed[places[i]] = denoised.failed[i];
    if (!denoised.stopped) batch.latents[places[i]] = denoised.latents[i];
  }
}

void ClipMaker::decode(BatchState& batch) {
  agree(denoise_and_decode_[batch.replica], batch);
  if (batch.stopped) return;
  for (const std::size_t i : batch.in_work()) {
    const Clip& clip = batch.clips[i];
    const ClipPlan& size = planned_.plan_of(clip);
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const Move from_denoising = latents_to_decoding(planned_.plan, size, batch.replica, clip);
    const Sharded latents{move(batch.latents[i], from_denoising, DType::float32, {}),
                          from_denoising.to, stages_.decode_clip.group()};
    Tensor embeddings;
    if (job_.keep_embeddings) {
      embeddings = move(batch.conditioning[i].text,
                        embeddings_to_writing(planned_.plan, size, batch.replica, clip, channels_),
                        job_.dtype, {});
    }
    if (!stages_.decode_clip.group().member()) continue;
    std::optional<Sharded> video = Sharded{};
    if (job_.keep_video) video = stages_.decode_clip(clip, latents.local, failures_);
    if (video) write(clip, latents, *video, embeddings);
  }
}

// Called on the ranks of the decoding group. wall_seconds of a clip: since the previous clip was
// written (or the start).
void ClipMaker::write(const Clip& clip, const Sharded& latents, const Sharded& video,
                      const Tensor& embeddings) {
  const trace::Scope scope("write", trace::Level::stages, "file");
  const stop::UnsavedWork unsaved;
  const comm::Group& group = stages_.decode_clip.group();
  ClipRecord record = clip.record;
  record.layout = describe(planned_.plan, planned_.size_of(clip));
  const std::int64_t now = trace::now_ns();
  record.wall_seconds = group.max(static_cast<double>(now - last_written_) * 1e-9);
  last_written_ = now;
  std::vector<Sharded> texts;  // the prompt, then the negative prompt
  if (job_.keep_embeddings) {
    const Layout layout = Layout::cut({clip.tokens(), channels_}, 0, group.size());
    for (std::int64_t text = std::ssize(clip.texts) - 1; text >= 0; --text) {
      texts.push_back({text_of(embeddings, text), layout, group});
    }
  }
  write_clip(group, job_.output, record, job_.keep_video ? &video : nullptr,
             job_.keep_latents ? &latents : nullptr, texts.empty() ? nullptr : &texts.front(),
             texts.size() > 1 ? &texts.back() : nullptr, job_.if_exists != IfExists::fail);
  if (group.rank() == 0) remove_restart(job_.output, clip.index());
}

}  // namespace

MadeClips make_clips(const Job& job, const JobPlan& planned, const comm::Group& world,
                     std::vector<Clip> clips, Device device) {
  if (clips.empty()) return {};
  std::vector<BatchState> batches;
  const std::size_t replicas = planned.plan.roles.denoise.size();
  for (Batch& batch : batches_of(std::move(clips), job.batch)) {
    const std::vector<bool> failed(batch.size());
    batches.push_back(
        {.clips = std::move(batch), .replica = batches.size() % replicas, .failed = failed});
  }
  return ClipMaker(job, planned, world, device).run(batches);
}

}  // namespace reelmesh::pipeline
