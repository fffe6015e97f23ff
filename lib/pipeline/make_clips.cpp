#include "pipeline/make_clips.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <span>
#include <utility>

#include "base/stop.hpp"
#include "pipeline/clip_maker.hpp"
#include "pipeline/split.hpp"

namespace reelmesh::pipeline {
namespace {

std::int64_t count_clips(std::span<const BatchState> batches) {
  std::int64_t clips = 0;
  for (const BatchState& batch : batches) clips += std::ssize(batch.outline);
  return clips;
}

// The ranks of two stages.
comm::Group ranks_of_both(const comm::Group& world, const RankRange& a, const RankRange& b) {
  return world.split(a.contains(world.rank()) || b.contains(world.rank()) ? 0 : -1);
}

// All ranks do one stage after the other; replicas make whole clips by themselves.
class PhasedJob {
 public:
  PhasedJob(ClipMaker& maker, comm::Watchdog* watchdog)
      : maker_(maker), world_(maker.world()), watchdog_(watchdog), input_vote_(world_) {
    make_replica_groups();
  }
  /// → whether all batches were made. tail: how many of the last ones are made by other replicas.
  bool run(std::span<BatchState> batches, std::size_t tail);

 private:
  void make_replica_groups();
  void count_waiting(std::int64_t clips) const;
  std::size_t in_queue(std::span<const BatchState> batches) const;
  void encode(std::span<BatchState> batches);
  void encode_inputs(std::span<BatchState> batches);
  void make(std::span<BatchState> batches, std::int64_t later);
  bool stop_all();
  void agree(const comm::Group& ranks, BatchState& batch) const;
  std::size_t next_batch(std::size_t replica, std::size_t turn);

  ClipMaker& maker_;
  comm::Group world_;
  comm::Watchdog* watchdog_;
  std::vector<comm::Group> replica_groups_;  // per replica: the ranks that denoise and decode
  int rounds_ = 0;                           // of make()
  PacedVote input_vote_;
  bool stopped_ = false;
};

// Whether all ranks leave now.
bool PhasedJob::stop_all() {
  stopped_ = world_.max(std::int64_t{stopped_ || stop::requested() ? 1 : 0}) > 0;
  return stopped_;
}

// Before a batch is handed over between the ranks of two stages: whether it goes on, and which of
// its clips.
void PhasedJob::agree(const comm::Group& ranks, BatchState& batch) const {
  batch.open();
  std::vector<std::int64_t> votes{batch.stopped || stop::requested() ? 1 : 0};
  votes.insert(votes.end(), batch.failed.begin(), batch.failed.end());
  ranks.max(votes);
  batch.stopped = votes.front() > 0;
  std::copy(votes.begin() + 1, votes.end(), batch.failed.begin());
}

void PhasedJob::make_replica_groups() {
  const Roles& roles = maker_.plan().roles;
  replica_groups_.clear();
  for (std::size_t replica = 0; replica < roles.denoise.size(); ++replica) {
    const bool own_decoder = roles.decode.size() > 1;  // within the replica's ranks
    replica_groups_.push_back(
        own_decoder ? maker_.stages().denoise_batch.group(replica)
                    : ranks_of_both(world_, roles.denoise[replica], roles.decode.front()));
  }
}

// So many clips are not begun; the first rank says so in the trace.
void PhasedJob::count_waiting(std::int64_t clips) const {
  if (world_.rank() == 0) trace::recorder().clips_waiting = clips;
}

// How many of these batches have embeddings that fit in the queue together; at least one.
std::size_t PhasedJob::in_queue(std::span<const BatchState> batches) const {
  std::size_t count = 0;
  std::int64_t bytes = 0;
  for (const BatchState& batch : batches) {
    bytes += maker_.embedding_bytes(batch);
    if (count > 0 && bytes > maker_.plan().queue_bytes) break;
    ++count;
  }
  return count;
}

// As many prompts as the queue holds are encoded before the first clip is denoised, since the text
// encoder then leaves the memory.
bool PhasedJob::run(std::span<BatchState> batches, std::size_t tail) {
  const std::span<BatchState> before_tail = batches.first(batches.size() - tail);
  std::size_t encoded = 0, made = 0;
  std::int64_t waiting = count_clips(batches);
  count_waiting(waiting);
  while (made < batches.size() && !stop_all()) {
    if (made == encoded) {
      encoded += in_queue(batches.subspan(encoded));
      encode(batches.subspan(made, encoded - made));
      if (stop_all()) break;
    }
    if (made == before_tail.size()) {
      maker_.begin_tail();
      make_replica_groups();
    }
    const std::size_t end =
        made < before_tail.size() ? std::min(encoded, before_tail.size()) : encoded;
    const std::span<BatchState> round = batches.subspan(made, end - made);
    waiting -= count_clips(round);
    make(round, waiting);
    made = end;
  }
  return !stopped_;
}

void PhasedJob::encode(std::span<BatchState> batches) {
  if (std::ranges::any_of(batches, &BatchState::needs_text)) maker_.stages().enter(Stages::text);
  for (BatchState& batch : batches) {
    maker_.encode(batch);
    stopped_ = stopped_ || batch.stopped;
  }
  if (std::ranges::any_of(batches, &BatchState::needs_input)) encode_inputs(batches);
}

// The decoding groups share the inputs. Each has at most a few on the way to the rank on which they
// wait, which receives them between its own.
void PhasedJob::encode_inputs(std::span<BatchState> batches) {
  maker_.stages().enter(Stages::input);
  const std::size_t groups = maker_.plan().roles.decode.size(), max_hand_overs = 2 * groups;
  std::deque<ClipMaker::InputsHandOver> hand_overs;
  std::size_t before = 0;
  for (BatchState& batch : batches) {
    if (!batch.needs_input()) continue;
    if (input_vote_.stop()) {
      stopped_ = true;
      break;
    }
    hand_overs.push_back(maker_.encode_inputs(batch, before, groups));
    before += batch.size();
    if (hand_overs.size() <= max_hand_overs) continue;
    hand_overs.front().finish();
    hand_overs.pop_front();
  }
  for (ClipMaker::InputsHandOver& hand_over : hand_overs) hand_over.finish();
}

// Each replica takes one encoded batch after the other and makes its clips by itself. Returns when
// there are no more; other replicas may still be at work.
// later: clips of the batches after these.
void PhasedJob::make(std::span<BatchState> batches, std::int64_t later) {
  maker_.stages().enter(Stages::denoise);
  const Queues queues(replica_groups_.size());
  const auto mine = std::ranges::find_if(replica_groups_, &comm::Group::member);
  const auto replica = static_cast<std::size_t>(mine - replica_groups_.begin());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    agree(world_, batches[i]);
    stopped_ = stopped_ || batches[i].stopped;
    const auto takers = queues.groups_of_task(i);
    for (const std::size_t taker : takers) {
      if (batches[i].needs_text() && !stopped_) maker_.condition(batches[i], taker);
    }
    batches[i].release_encoded();
  }
  std::int64_t left = count_clips(batches);
  for (std::size_t turn = 0, before = 0; mine != replica_groups_.end() && !stopped_; ++turn) {
    const std::size_t taken = next_batch(replica, turn);
    // Other replicas have taken those between.
    for (; before < std::min(taken, batches.size()); ++before) {
      left -= std::ssize(batches[before].outline);
      batches[before].release();
    }
    if (taken >= batches.size()) break;
    count_waiting(left - std::ssize(batches[taken].outline) + later);
    BatchState& batch = batches[taken];
    maker_.stages().enter(Stages::denoise);
    maker_.denoise(batch, replica, [] {});
    agree(*mine, batch);
    stopped_ = batch.stopped;
    if (stopped_) break;
    maker_.stages().enter(Stages::decode);
    const std::size_t decoder = maker_.plan().roles.usual_decoder(replica);
    maker_.decode(batch, decoder, maker_.hand_over_latents(batch, replica, decoder));
  }
  ++rounds_;
  if (stopped_) return;
  for (BatchState& batch : batches) batch.release();
  count_waiting(later);
}

// The batch that a replica makes next, the same on all its ranks; the number of batches or more if
// there is none, or if the job is to stop. turn: how many it has taken.
std::size_t PhasedJob::next_batch(std::size_t replica, std::size_t turn) {
  const comm::Group& group = replica_groups_[replica];
  const Queues queues(replica_groups_.size());
  const std::size_t queue = queues.of_group(replica);
  auto position = static_cast<std::int64_t>(queues.position_by_turns(replica, turn));
  if (replica_groups_.size() > 1 && watchdog_ != nullptr && watchdog_->has_queues()) {
    const int number = rounds_ * world_.size() + static_cast<int>(queue);  // of the queue
    position = group.rank() == 0 ? watchdog_->take(number, comm::End::front).front : 0;
  }
  std::array<std::int64_t, 2> votes{stop::requested() ? 1 : 0, position};
  group.max(votes);
  stopped_ = votes[0] > 0;
  return stopped_ ? std::numeric_limits<std::size_t>::max()
                  : queues.task(queue, static_cast<std::size_t>(votes[1]));
}

}  // namespace

MadeClips make_clips(const Job& job, const JobPlan& planned, const comm::Group& world,
                     std::span<const ClipOutline> clips, Device device, comm::Watchdog* watchdog) {
  if (clips.empty()) return {};
  std::vector<BatchOutline> batches = form_batches(clips, planned.kinds, job.batch);
  const std::vector<std::size_t> order = batch_order(planned, batches);
  const std::vector<HelperRule> rules = helper_rules(planned, batches, order);
  std::vector<BatchState> states;
  states.reserve(batches.size());
  std::int64_t steps = 0;
  for (const std::size_t i : order) {
    steps += batch_steps(batches[i], planned.kinds);
    states.emplace_back(job, planned, std::move(batches[i]));
  }
  batches = {};
  ClipMaker maker(job, planned, world, device, steps);
  const bool own_complete = planned.plan.roles.mode == Mode::split
                                ? make_split(maker, states, rules, watchdog)
                                : PhasedJob(maker, watchdog).run(states, planned.tail_batches);
  const bool complete = world.max(std::int64_t{own_complete ? 0 : 1}) == 0;
  return maker.finish(complete);
}

}  // namespace reelmesh::pipeline
