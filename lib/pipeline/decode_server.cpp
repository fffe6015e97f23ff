#include "pipeline/decode_server.hpp"

#include "base/stop.hpp"
#include "base/trace.hpp"

namespace reelmesh::pipeline {

DecodeServer::DecodeServer(Work& work, const Schedule& schedule, comm::Mailbox& mailbox)
    : work_(work),
      schedule_(schedule),
      mailbox_(mailbox),
      group_(work.decoder_ranks(0)),
      leads_(group_.rank() == 0),
      inputs_left_(any_needs_input(work, 0, schedule.batches)),
      replicas_at_work_(schedule.roles.denoise.size()) {}

bool DecodeServer::run() {
  if (!inputs_left_) {
    work_.watch(Stage::decode);
    stopped_ = group_.max(std::int64_t{stop::leaving() ? 1 : 0}) > 0;
    if (!stopped_) work_.enter(Stage::decode);
  }
  while (true) {
    Words task = comm::broadcast_values(group_, leads_ ? next_task() : Words(), 0);
    if (task.empty()) return !stopped_;
    const bool stops = task.back() != 0;
    task.pop_back();
    if (kind_of(task) == MessageKind::latents) {
      decode(task, stops);
    } else {
      encode(task.at(1), stops);
    }
  }
}

// None if all replicas have finished.
Words DecodeServer::next_task() {
  while (arrived_.empty() && (inputs_left_ || replicas_at_work_ > 0)) {
    receive(wait_for_message(mailbox_, [this] { work_.wait_idly(); }));
  }
  if (arrived_.empty()) return {};
  Words task = std::move(arrived_.front());
  arrived_.pop_front();
  work_.watch(kind_of(task) == MessageKind::latents ? Stage::decode : Stage::input);
  task.push_back(stopped_ || stop::leaving() ? 1 : 0);
  return task;
}

void DecodeServer::receive(Words words) {
  switch (kind_of(words)) {
    case MessageKind::latents:
      trace::recorder().clips_waiting +=
          static_cast<std::int64_t>(work_.clips(static_cast<std::size_t>(words.at(2))));
      arrived_.push_back(std::move(words));
      return;
    case MessageKind::encode:
      arrived_.push_back(std::move(words));
      return;
    case MessageKind::finished:
      --replicas_at_work_;
      return;
    default:
      fail(Status::internal, "the decoding ranks got a control message of kind {}", words.front());
  }
}

void DecodeServer::decode(const Words& latents, bool stops) {
  const auto replica = static_cast<std::size_t>(latents.at(1)),
             batch = static_cast<std::size_t>(latents.at(2));
  if (leads_) {
    trace::recorder().clips_waiting -= static_cast<std::int64_t>(work_.clips(batch));
    mailbox_.post(schedule_.roles.denoise[replica].first, control_message(MessageKind::accepted));
  }
  read_flags(latents, 3, work_.failed(batch));
  std::unique_ptr<PendingHandOver> pending = work_.hand_over_latents(batch, replica, 0);
  if (stops) {
    stopped_ = true;
    pending->finish();
  } else {
    work_.enter(Stage::decode);
    work_.decode(batch, 0, std::move(pending));
  }
  work_.release(batch);
}

// batch: −1 after the last one. The text ranks receive the inputs when they are not at work.
void DecodeServer::encode(std::int64_t batch, bool stops) {
  constexpr std::size_t max_pending = 2;
  if (batch < 0) {
    inputs_left_ = false;
    for (const auto& hand_over : pending_) hand_over->finish();
    pending_.clear();
    work_.leave_input();
    return;
  }
  stopped_ = stopped_ || stops;
  if (!stops) {
    work_.enter(Stage::input);
    pending_.push_back(work_.encode_inputs(static_cast<std::size_t>(batch), 0, 1));
  }
  if (leads_) {
    mailbox_.post(schedule_.embeddings_rank,
                  control_message(MessageKind::encoded, {batch, stops ? 1 : 0}));
  }
  if (pending_.size() <= max_pending) return;
  pending_.front()->finish();
  pending_.pop_front();
}

}  // namespace reelmesh::pipeline
