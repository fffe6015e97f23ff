#include "pipeline/make_clips.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/progress.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"
#include "ops/pointwise.hpp"
#include "pipeline/hand_overs.hpp"
#include "pipeline/restart.hpp"
#include "pipeline/stages.hpp"
#include "plan/schedule.hpp"

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
  // Agreed by the ranks of two stages when the batch passes from one to the other: its remaining
  // stages are left out.
  bool stopped = false;
  std::vector<bool> failed;                // likewise, per clip
  std::vector<Tensor> embeddings;          // after encoding
  std::vector<Conditioning> conditioning;  // after the hand-over to the denoising groups
  std::vector<Tensor> latents;             // after denoising

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

// The ranks of two stages.
comm::Group ranks_of_both(const comm::Group& world, const RankRange& a, const RankRange& b) {
  return world.split(a.contains(world.rank()) || b.contains(world.rank()) ? 0 : -1);
}

class ClipMaker {
 public:
  ClipMaker(const Job& job, const JobPlan& planned, const comm::Group& world, Device device,
            comm::Watchdog* watchdog)
      : job_(job),
        planned_(planned),
        plan_(&planned.plan),
        world_(world),
        device_(device),
        watchdog_(watchdog),
        channels_(planned.family->text_encoder().d_model),
        failures_(job.strict),
        stages_(world, job, planned, device),
        text_vote_(stages_.encode.group()) {
    make_replica_groups();
    const Roles& roles = planned.plan.roles;
    if (roles.mode != Mode::split) return;
    for (const RankRange& denoise : roles.denoise) {
      text_and_denoise_.push_back(ranks_of_both(world, roles.text, denoise));
    }
  }

  MadeClips run(std::vector<BatchState>& batches);

 private:
  void make_replica_groups();
  const ClipPlan& plan_of(const Clip& clip) const { return planned_.plan_of(clip, *plan_); }
  void run_phased(std::span<BatchState> batches);
  void run_split(std::span<BatchState> batches);
  void make(std::span<BatchState> batches, bool tail);
  bool stop_all();
  void agree(const comm::Group& ranks, BatchState& batch) const;
  std::size_t next_batch(std::size_t replica, std::size_t turn, bool tail);
  void encode(BatchState& batch);
  void condition(BatchState& batch, std::size_t replica);
  void read_conditioning(BatchState& batch, std::size_t replica) const;
  void denoise(BatchState& batch, std::size_t replica);
  void decode(BatchState& batch, std::size_t replica);
  Tensor move(const Tensor& x, const Move& move, DType dtype, Device device) const;
  void write(const Clip& clip, std::size_t replica, const Sharded& latents, const Sharded& video,
             const Tensor& embeddings);

  const Job& job_;
  const JobPlan& planned_;
  const Plan* plan_;  // planned_.plan, and for the last clips planned_.tail
  comm::Group world_;
  Device device_;
  comm::Watchdog* watchdog_;
  std::int64_t channels_;  // of embeddings
  Failures failures_;
  Stages stages_;
  PacedVote text_vote_;
  std::vector<comm::Group> replica_groups_;    // per replica: the ranks that denoise and decode
  std::vector<comm::Group> text_and_denoise_;  // per replica, in split mode
  std::optional<Progress> progress_;
  bool stopped_ = false;
  std::int64_t last_written_ = trace::now_ns();
};

// Where all ranks do one stage after the other: whether all of them leave now.
bool ClipMaker::stop_all() {
  stopped_ = world_.max(std::int64_t{stopped_ || stop::requested() ? 1 : 0}) > 0;
  return stopped_;
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

// prompts → embeddings → latents → video → files, the same code on every rank.
MadeClips ClipMaker::run(std::vector<BatchState>& batches) {
  const Roles& roles = planned_.plan.roles;
  std::int64_t steps = 0;
  for (const BatchState& batch : batches) steps += steps_of(batch.clips);
  // The first rank of the first replica shows its progress, and expects an even share of the steps.
  const auto replicas = std::ssize(roles.denoise);
  progress_.emplace("denoising", (steps + replicas - 1) / replicas, "step",
                    Progress::standard_error(world_.rank() == roles.denoise.front().first));
  progress_->pause();
  if (roles.mode == Mode::split) {
    run_split(batches);
  } else {
    run_phased(batches);
  }
  stopped_ = world_.max(std::int64_t{stopped_ ? 1 : 0}) > 0;
  if (!stopped_) progress_->finish();
  return {!stopped_, failures_.of_all(world_)};
}

void ClipMaker::make_replica_groups() {
  const Roles& roles = plan_->roles;
  replica_groups_.clear();
  for (std::size_t replica = 0; replica < roles.denoise.size(); ++replica) {
    const bool own_decoder = roles.decode.size() > 1;  // within the replica's ranks
    replica_groups_.push_back(
        own_decoder ? stages_.denoise_batch.group(replica)
                    : ranks_of_both(world_, roles.denoise[replica], roles.decode.front()));
  }
}

// All prompts are encoded before the first clip is denoised, since the text encoder then leaves the
// memory.
void ClipMaker::run_phased(std::span<BatchState> batches) {
  if (stop_all()) return;
  if (std::ranges::any_of(batches, &BatchState::needs_text)) stages_.enter(Stages::text);
  for (BatchState& batch : batches) encode(batch);
  if (stop_all()) return;
  const std::size_t before_tail = batches.size() - planned_.tail_batches;
  make(batches.first(before_tail), false);
  if (!planned_.tail || stop_all()) return;
  plan_ = &*planned_.tail;
  stages_.denoise_batch.regroup(world_, *plan_);
  stages_.decode_clip.regroup(world_, *plan_);
  make_replica_groups();
  make(batches.subspan(before_tail), true);
}

// Each replica takes one encoded batch after the other and makes its clips by itself. Returns when
// there are no more; other replicas may still be at work.
void ClipMaker::make(std::span<BatchState> batches, bool tail) {
  stages_.enter(Stages::denoise);
  const Queues queues(replica_groups_.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    agree(world_, batches[i]);
    for (const std::size_t replica : queues.groups_of_task(i)) condition(batches[i], replica);
    batches[i].embeddings.clear();
  }
  const auto mine = std::ranges::find_if(replica_groups_, &comm::Group::member);
  if (mine == replica_groups_.end()) return;
  const auto replica = static_cast<std::size_t>(mine - replica_groups_.begin());
  for (std::size_t turn = 0, before = 0; !stopped_; ++turn) {
    const std::size_t taken = next_batch(replica, turn, tail);
    // Other replicas have taken those between.
    for (; before < std::min(taken, batches.size()); ++before) batches[before] = {};
    if (taken >= batches.size()) break;
    BatchState& batch = batches[taken];
    progress_->expect(steps_of(batch.clips));
    stages_.enter(Stages::denoise);
    denoise(batch, replica);
    stages_.enter(Stages::decode);
    decode(batch, replica);
    stopped_ = batch.stopped;
  }
}

// Clips stream through the stages, each of which has ranks of its own.
void ClipMaker::run_split(std::span<BatchState> batches) {
  stages_.enter(Stages::denoise);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    BatchState& batch = batches[i];
    const std::size_t replica = i % replica_groups_.size();
    encode(batch);
    agree(text_and_denoise_[replica], batch);
    condition(batch, replica);
    denoise(batch, replica);
    decode(batch, replica);
    stopped_ = stopped_ || batch.stopped;
    batch = {};
  }
}

// The batch that a replica makes next, the same on all its ranks; the number of batches or more if
// there is none, or if the job is to stop. turn: how many it has taken.
std::size_t ClipMaker::next_batch(std::size_t replica, std::size_t turn, bool tail) {
  const comm::Group& group = replica_groups_[replica];
  const Queues queues(replica_groups_.size());
  const std::size_t queue = queues.of_group(replica);
  auto place = static_cast<std::int64_t>(queues.place_by_turns(replica, turn));
  if (replica_groups_.size() > 1 && watchdog_ != nullptr && watchdog_->has_counter()) {
    const auto counter = static_cast<int>(2 * queue + (tail ? 1 : 0));
    place = group.rank() == 0 ? watchdog_->take_number(counter) : 0;
  }
  std::array<std::int64_t, 2> votes{stop::requested() ? 1 : 0, place};
  group.max(votes);
  stopped_ = votes[0] > 0;
  return stopped_ ? std::numeric_limits<std::size_t>::max()
                  : queues.task(queue, static_cast<std::size_t>(votes[1]));
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
    if (ops::all_finite(embeddings)) continue;  // also where they are on another rank
    failures_.add(clip.index(), "the text embeddings");
    batch.failed[i] = true;
  }
}

Tensor ClipMaker::move(const Tensor& x, const Move& move, DType dtype, Device device) const {
  const trace::Scope scope("handover", trace::Level::stages, "exchange");
  return hand_over(world_, x, move, dtype, device);
}

void ClipMaker::condition(BatchState& batch, std::size_t replica) {
  if (batch.stopped || !batch.needs_text()) return;
  const comm::Group& group = stages_.denoise_batch.group(replica);
  for (const std::size_t i : batch.in_work()) {
    const Clip& clip = batch.clips[i];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const Move from_text = embeddings_to_denoising(*plan_, plan_of(clip), replica, clip, channels_);
    const Tensor text = move(batch.embeddings[i], from_text, job_.dtype, {});
    if (group.member()) batch.conditioning[i] = {text};
  }
}

// Restart files have the embeddings of their clips.
void ClipMaker::read_conditioning(BatchState& batch, std::size_t replica) const {
  const comm::Group& group = stages_.denoise_batch.group(replica);
  for (std::size_t i = 0; group.member() && i < batch.clips.size(); ++i) {
    const Clip& clip = batch.clips[i];
    const Move from_text = embeddings_to_denoising(*plan_, plan_of(clip), replica, clip, channels_);
    const Box& box = own_box(from_text.to, group);
    Tensor text = Tensor::empty(box.extent, job_.dtype);
    if (!box.empty()) text = open_restart(job_, clip, channels_).read("embeddings", box);
    batch.conditioning[i] = {text.to(job_.dtype)};
  }
}

void ClipMaker::denoise(BatchState& batch, std::size_t replica) {
  if (batch.stopped) return;
  if (!batch.needs_text()) read_conditioning(batch, replica);
  const std::vector<std::size_t> places = batch.in_work();
  if (places.empty()) return;
  Batch clips;
  std::vector<Conditioning> conditioning;
  for (const std::size_t i : places) {
    clips.push_back(batch.clips[i]);
    conditioning.push_back(batch.conditioning[i]);
  }
  const trace::Mark mark(&trace::Recorder::clip, clips.front().index());
  progress_->resume();
  Denoised denoised = stages_.denoise_batch(
      clips, replica, conditioning, [&] { progress_->advance(std::ssize(clips)); }, failures_);
  progress_->pause();
  batch.stopped = denoised.stopped;
  for (std::size_t i = 0; i < places.size(); ++i) {
    batch.failed[places[i]] = denoised.failed[i];
    if (!denoised.stopped) batch.latents[places[i]] = denoised.latents[i];
  }
}

void ClipMaker::decode(BatchState& batch, std::size_t replica) {
  agree(replica_groups_[replica], batch);
  if (batch.stopped) return;
  const comm::Group& group = stages_.decode_clip.group(replica);
  for (const std::size_t i : batch.in_work()) {
    const Clip& clip = batch.clips[i];
    const ClipPlan& size = plan_of(clip);
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const Move from_denoising = latents_to_decoding(*plan_, size, replica, clip);
    const Sharded latents{move(batch.latents[i], from_denoising, DType::float32, {}),
                          from_denoising.to, group};
    Tensor embeddings;
    if (job_.keep_embeddings) {
      embeddings =
          move(batch.conditioning[i].text,
               embeddings_to_writing(*plan_, size, replica, clip, channels_), job_.dtype, {});
    }
    if (!group.member()) continue;
    std::optional<Sharded> video = Sharded{};
    if (job_.keep_video) video = stages_.decode_clip(clip, replica, latents.local, failures_);
    if (video) write(clip, replica, latents, *video, embeddings);
  }
}

// Called on the ranks of the decoding group. wall_seconds of a clip: since the previous clip was
// written (or the start).
void ClipMaker::write(const Clip& clip, std::size_t replica, const Sharded& latents,
                      const Sharded& video, const Tensor& embeddings) {
  const trace::Scope scope("write", trace::Level::stages, "file");
  const stop::UnsavedWork unsaved;
  const comm::Group& group = stages_.decode_clip.group(replica);
  ClipRecord record = clip.record;
  record.layout = describe(*plan_, planned_.size_of(clip));
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
                     std::vector<Clip> clips, Device device, comm::Watchdog* watchdog) {
  if (clips.empty()) return {};
  std::vector<Batch> batches = batches_of(std::move(clips), job.batch);
  std::vector<BatchState> states;
  for (const std::size_t i : order_of(planned, batches)) {
    const std::size_t size = batches[i].size();
    states.push_back({.clips = std::move(batches[i]),
                      .failed = std::vector<bool>(size),
                      .conditioning = std::vector<Conditioning>(size),
                      .latents = std::vector<Tensor>(size)});
  }
  return ClipMaker(job, planned, world, device, watchdog).run(states);
}

}  // namespace reelmesh::pipeline
