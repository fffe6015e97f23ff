#include "pipeline/phased.hpp"

#include <algorithm>
#include <deque>

#include "base/stop.hpp"
#include "base/trace.hpp"
#include "pipeline/batch_queue.hpp"
#include "pipeline/replica.hpp"

namespace reelmesh::pipeline {
namespace {

class Phased {
 public:
  Phased(const comm::Group& world, Work& work, const Schedule& schedule, comm::Watchdog* watchdog)
      : world_(world),
        work_(work),
        schedule_(schedule),
        watchdog_(watchdog),
        roles_(&schedule.roles),
        input_vote_(world) {
    make_groups();
  }
  bool run();

 private:
  void make_groups();
  void encode(std::size_t first, std::size_t end);
  void encode_inputs(std::size_t first, std::size_t end);
  void hand_over(const Round& round, const Queues& queues);
  void make(const Round& round);
  bool agree(const comm::Group& ranks, std::size_t batch);
  bool stop_together();
  bool stop_together_before(Stage next);
  void begins(std::size_t batch);
  void count_waiting() const;

  comm::Group world_;
  Work& work_;
  const Schedule& schedule_;
  comm::Watchdog* watchdog_;
  const Roles* roles_;
  std::vector<comm::Group> groups_;  ///< per replica: the ranks that denoise or decode its batches
  int rounds_ = 0;                   ///< of make()
  std::int64_t waiting_ = 0;         ///< clips that are not begun, as far as this rank knows
  PacedVote input_vote_;
  bool stopped_ = false;
};

// Collective over the world.
void Phased::make_groups() {
  groups_.clear();
  for (std::size_t replica = 0; replica < roles_->denoise.size(); ++replica) {
    const RankRange &a = roles_->denoise[replica], &b = roles_->decode[roles_->decoder(replica)];
    const bool within = roles_->decode.size() > 1;  // the decoder is a part of the replica
    const int me = world_.rank();
    groups_.push_back(within ? work_.replica_ranks(replica)
                             : world_.split(a.contains(me) || b.contains(me) ? 0 : -1));
  }
}

// Whether all ranks leave now.
bool Phased::stop_together() {
  stopped_ = world_.max(std::int64_t{stopped_ || stop::leaving() ? 1 : 0}) > 0;
  return stopped_;
}

// The same, before the weights of a stage are loaded.
bool Phased::stop_together_before(Stage next) {
  work_.watch(next);
  return stop_together();
}

// Before a batch is handed over between the ranks of two stages: whether it goes on, and which of
// its clips. Collective over the ranks.
bool Phased::agree(const comm::Group& ranks, std::size_t batch) {
  std::vector<bool>& failed = work_.failed(batch);
  std::vector<std::int64_t> votes{stopped_ || stop::leaving() ? 1 : 0};
  votes.insert(votes.end(), failed.begin(), failed.end());
  ranks.max(votes);
  std::copy(votes.begin() + 1, votes.end(), failed.begin());
  stopped_ = votes.front() > 0;
  return !stopped_;
}

// This batch has been begun, by this replica or another.
void Phased::begins(std::size_t batch) {
  waiting_ -= static_cast<std::int64_t>(work_.clips(batch));
}

// The first rank says in the trace how many clips are not begun.
void Phased::count_waiting() const {
  if (world_.rank() == 0) trace::recorder().clips_waiting = waiting_;
}

// As many prompts as the queue holds are encoded before the first clip is denoised, since the text
// encoder then leaves the memory.
bool Phased::run() {
  for (std::size_t i = 0; i < schedule_.batches; ++i) {
    waiting_ += static_cast<std::int64_t>(work_.clips(i));
  }
  count_waiting();
  Rounds rounds(schedule_.batches, schedule_.tail_batches, schedule_.queue_bytes,
                [&](std::size_t batch) { return work_.embedding_bytes(batch); });
  for (auto round = rounds.next(); round && !stop_together(); round = rounds.next()) {
    if (round->encoded > round->first) {
      encode(round->first, round->encoded);
      if (stop_together()) break;
    }
    if (round->begins_tail) {
      work_.begin_tail();
      roles_ = &schedule_.tail_roles;
      make_groups();
    }
    make(*round);
  }
  return !stopped_;
}

void Phased::encode(std::size_t first, std::size_t end) {
  bool texts = false;
  for (std::size_t i = first; i < end; ++i) texts = texts || work_.needs_text(i);
  if (texts && !stop_together_before(Stage::text)) work_.enter(Stage::text);
  for (std::size_t i = first; i < end && !stopped_; ++i) {
    if (work_.needs_text(i) && work_.text_ranks().member()) stopped_ = !work_.encode(i);
  }
  if (any_needs_input(work_, first, end)) encode_inputs(first, end);
}

// The decoders share the inputs. Each has at most a few on the way to the rank on which they wait,
// which receives them between its own.
void Phased::encode_inputs(std::size_t first, std::size_t end) {
  if (stop_together_before(Stage::input)) return;
  work_.enter(Stage::input);
  const std::size_t decoders = roles_->decode.size(), max_pending = 2 * decoders;
  std::deque<std::unique_ptr<PendingHandOver>> pending;
  std::size_t before = 0;
  for (std::size_t i = first; i < end; ++i) {
    if (!work_.needs_input(i)) continue;
    if (input_vote_.stop_together()) {
      stopped_ = true;
      break;
    }
    pending.push_back(work_.encode_inputs(i, before, decoders));
    before += work_.clips(i);
    if (pending.size() <= max_pending) continue;
    pending.front()->finish();
    pending.pop_front();
  }
  for (const auto& hand_over : pending) hand_over->finish();
}

// Each batch goes to all replicas that may take it.
void Phased::hand_over(const Round& round, const Queues& queues) {
  if (stop_together_before(Stage::denoise)) return;
  work_.enter(Stage::denoise);
  for (std::size_t i = round.first; i < round.end; ++i) {
    agree(world_, i);
    if (work_.needs_text(i) && !stopped_) {
      for (const std::size_t taker : queues.groups_of_task(i - round.first)) {
        work_.hand_over_text(i, taker);
      }
    }
    work_.release_embeddings(i);
  }
}

// Each replica makes batches by itself. Returns when none is left for this one; others may still be
// at work.
void Phased::make(const Round& round) {
  const Queues queues(groups_.size());
  hand_over(round, queues);
  std::size_t first = round.first;  // not begun, as far as this replica knows
  const auto mine = std::ranges::find_if(groups_, &comm::Group::member);
  if (mine != groups_.end() && !stopped_) {
    const auto replica = static_cast<std::size_t>(mine - groups_.begin());
    BatchQueue queue(*mine, replica, queues, watchdog_,
                     schedule_.first_queue + rounds_ * world_.size());
    const ReplicaPolicy policy{.receive =
                                   [&](std::size_t batch) {
                                     for (; first < batch; ++first) {  // others have taken them
                                       begins(first);
                                       work_.release(first);
                                     }
                                     begins(first++);
                                     count_waiting();
                                     return true;
                                   },
                               .after_step = [] {},
                               .pass_on =
                                   [&](std::size_t batch, bool stopped) {
                                     stopped_ = stopped;
                                     if (!agree(*mine, batch)) return false;
                                     work_.enter(Stage::decode);
                                     const std::size_t decoder = roles_->decoder(replica);
                                     work_.decode(batch, decoder,
                                                  work_.hand_over_latents(batch, replica, decoder));
                                     return true;
                                   }};
    stopped_ = !run_replica(work_, queue, replica, round.first, round.end, policy);
  }
  ++rounds_;
  if (stopped_) return;
  for (std::size_t i = round.first; i < round.end; ++i) work_.release(i);
  for (; first < round.end; ++first) begins(first);
  count_waiting();
}

}  // namespace

bool run_phased(const comm::Group& world, Work& work, const Schedule& schedule,
                comm::Watchdog* watchdog) {
  return Phased(world, work, schedule, watchdog).run();
}

}  // namespace reelmesh::pipeline
