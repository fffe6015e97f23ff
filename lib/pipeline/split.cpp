#include "pipeline/split.hpp"

#include <algorithm>
#include <deque>
#include <optional>

#include "base/stop.hpp"
#include "pipeline/decode_server.hpp"
#include "pipeline/replica.hpp"
#include "pipeline/text_server.hpp"

namespace reelmesh::pipeline {
namespace {

// The ranks of one replica.
class SplitReplica {
 public:
  SplitReplica(Work& work, const Schedule& schedule, std::size_t replica, comm::Mailbox& mailbox,
               comm::Watchdog* watchdog)
      : work_(work),
        replica_(replica),
        mailbox_(mailbox),
        group_(work.replica_ranks(replica)),
        text_leader_(schedule.embeddings_rank),
        decode_leader_(schedule.roles.decode.front().first),
        batches_(schedule.batches),
        queue_(group_, replica,
               Queues(schedule.roles.denoise.size(), schedule.roles.denoise.size()), watchdog,
               schedule.first_queue) {}
  bool run();

 private:
  bool leads() const { return group_.rank() == 0; }
  void take_message();
  bool receive(std::size_t batch);
  bool pass_on(std::size_t batch, bool stopped);

  Work& work_;
  std::size_t replica_;
  comm::Mailbox& mailbox_;
  comm::Group group_;
  int text_leader_, decode_leader_;  // ranks of the world
  std::size_t batches_;
  BatchQueue queue_;
  std::optional<Words> reply_;    // on the leader
  std::size_t not_accepted_ = 0;  // on the leader: batches sent to the decoding ranks
  std::deque<std::unique_ptr<PendingHandOver>> pending_;
};

bool SplitReplica::run() {
  const bool made = run_replica(
      work_, queue_, replica_, 0, batches_,
      {.receive = [this](std::size_t batch) { return receive(batch); },
       .after_step = [] {},
       .pass_on = [this](std::size_t batch, bool stopped) { return pass_on(batch, stopped); }});
  if (leads()) {
    const auto number = static_cast<std::int64_t>(replica_);
    mailbox_.post(text_leader_, control_message(MessageKind::finished, {number}));
    mailbox_.post(decode_leader_, control_message(MessageKind::finished, {number}));
    while (not_accepted_ > 0) take_message();
  }
  for (const auto& hand_over : pending_) hand_over->finish();
  return made;
}

// Of the leader.
void SplitReplica::take_message() {
  Words words = wait_for_message(mailbox_, [this] { work_.wait_idly(); });
  switch (kind_of(words)) {
    case MessageKind::reply:
      reply_ = std::move(words);
      return;
    case MessageKind::accepted:
      --not_accepted_;
      return;
    default:
      fail(Status::internal, "a replica got a control message of kind {}", words.front());
  }
}

// Gets the embeddings from the text ranks, unless a restart file has them.
bool SplitReplica::receive(std::size_t batch) {
  if (!work_.needs_text(batch)) return true;
  if (leads()) {
    mailbox_.post(text_leader_,
                  control_message(MessageKind::request, {static_cast<std::int64_t>(replica_),
                                                         static_cast<std::int64_t>(batch)}));
    while (!reply_) take_message();
  }
  const Words words = comm::broadcast_values(group_, reply_.value_or(Words()), 0);
  reply_.reset();
  if (words.at(1) != 0) return false;
  read_flags(words, 2, work_.failed(batch));
  work_.hand_over_text(batch, replica_);
  return true;
}

bool SplitReplica::pass_on(std::size_t batch, bool stopped) {
  if (stopped) return false;
  if (leads()) {
    while (not_accepted_ == max_pending_batches) take_message();
    Words words = control_message(MessageKind::latents, {static_cast<std::int64_t>(replica_),
                                                         static_cast<std::int64_t>(batch)});
    append_flags(words, work_.failed(batch));
    mailbox_.post(decode_leader_, std::move(words));
    ++not_accepted_;
  }
  pending_.push_back(work_.hand_over_latents(batch, replica_, 0));
  if (pending_.size() <= max_pending_batches) return true;
  pending_.front()->finish();
  pending_.pop_front();
  return true;
}

}  // namespace

bool run_split(const comm::Group& world, Work& work, const Schedule& schedule,
               comm::Watchdog* watchdog) {
  const Roles& roles = schedule.roles;
  const int me = world.rank();
  comm::Mailbox mailbox(world);
  if (roles.text.contains(me)) return TextServer(work, schedule, mailbox).run();
  if (roles.decode.front().contains(me)) return DecodeServer(work, schedule, mailbox).run();
  const auto mine = std::ranges::find_if(
      roles.denoise, [&](const RankRange& range) { return range.contains(me); });
  if (mine == roles.denoise.end()) return true;  // idle
  const auto replica = static_cast<std::size_t>(mine - roles.denoise.begin());
  return SplitReplica(work, schedule, replica, mailbox, watchdog).run();
}

}  // namespace reelmesh::pipeline
