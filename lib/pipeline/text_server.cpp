#include "pipeline/text_server.hpp"

#include <algorithm>

#include "base/stop.hpp"
#include "base/trace.hpp"

namespace reelmesh::pipeline {

TextServer::TextServer(Work& work, const Schedule& schedule, comm::Mailbox& mailbox)
    : work_(work),
      schedule_(schedule),
      mailbox_(mailbox),
      group_(work.text_ranks()),
      leader_(schedule.embeddings_rank - schedule.roles.text.first),
      leads_(group_.rank() == leader_),
      decode_leader_(schedule.roles.decode.front().first),
      encoding_(schedule.batches, Encoding::missing),
      served_by_(schedule.roles.denoise.size()) {
  // The others have restart files, from which replicas read the embeddings.
  for (std::size_t i = 0; i < encoding_.size(); ++i) {
    if (!work.needs_text(i)) encoding_[i] = Encoding::ready;
  }
}

bool TextServer::run() {
  encode_all();
  if (!leads_) return !stopped_;
  if (any_needs_input(work_, 0, schedule_.batches)) {
    while (inputs_awaited_ > 0) receive(wait_for_message(mailbox_, [this] { work_.wait_idly(); }));
    mailbox_.post(decode_leader_, control_message(MessageKind::encode, {-1}));
  }
  answer_requests();
  while (!all_served()) {
    receive(wait_for_message(mailbox_, [this] { work_.wait_idly(); }));
  }
  trace::recorder().clips_waiting = 0;
  return !stopped_;
}

// The leader decides which batches are encoded next, and answers replicas in between.
void TextServer::encode_all() {
  const bool encodes = std::ranges::find(encoding_, Encoding::missing) != encoding_.end();
  if (encodes) {
    work_.watch(Stage::text);
    stopped_ = group_.max(std::int64_t{stop::leaving() ? 1 : 0}) > 0;
    if (!stopped_) work_.enter(Stage::text);
  }
  for (bool goes_on = true; goes_on;) {
    const Words next = comm::broadcast_values(group_, leads_ ? next_to_encode() : Words(), leader_);
    if (next.empty()) break;
    for (const std::int64_t number : next) {
      const auto i = static_cast<std::size_t>(number);
      const bool input = work_.needs_input(i);
      if (leads_ && input) {
        ++inputs_awaited_;
        mailbox_.post(decode_leader_, control_message(MessageKind::encode, {number}));
      }
      goes_on = work_.encode(i);
      if (!leads_) work_.release(i);  // its embeddings are on the leader
      if (!goes_on) break;
      if (!leads_) continue;
      encoding_[i] = input ? Encoding::input_awaited : Encoding::ready;
      waiting_bytes_ += work_.embedding_bytes(i);
      trace::recorder().clips_waiting += static_cast<std::int64_t>(work_.clips(i));
      answer_requests();
      receive_pending();
    }
    stopped_ = stopped_ || !goes_on;
  }
}

// Waits until there is room in the queue. None if all are encoded or the job stops.
Words TextServer::next_to_encode() {
  constexpr std::size_t max_batches = 8;  // until the leader decides again
  while (true) {
    receive_pending();
    stopped_ = stopped_ || stop::leaving();
    while (first_missing_ < encoding_.size() && encoding_[first_missing_] != Encoding::missing) {
      ++first_missing_;
    }
    const bool all_encoded = first_missing_ == encoding_.size() && inputs_awaited_ == 0;
    if (stopped_ || all_encoded || all_served()) return {};
    Words next;
    const auto add = [&](std::size_t i) {
      const auto number = static_cast<std::int64_t>(i);
      if (std::ranges::find(next, number) == next.end()) next.push_back(number);
    };
    for (const auto& [replica, batch] : requested_) {
      if (encoding_[batch] == Encoding::missing) add(batch);
    }
    std::int64_t bytes = waiting_bytes_;
    for (std::size_t i = first_missing_; i < encoding_.size() && next.size() < max_batches; ++i) {
      if (encoding_[i] != Encoding::missing) continue;
      bytes += work_.embedding_bytes(i);
      if (bytes > schedule_.queue_bytes) break;
      add(i);
    }
    if (!next.empty()) return next;
    receive(wait_for_message(mailbox_, [this] { work_.wait_idly(); }));
  }
}

void TextServer::receive_pending() {
  while (const auto message = mailbox_.poll()) receive(message->words);
}

void TextServer::receive(const Words& words) {
  const auto first = static_cast<std::size_t>(words.at(1));
  stopped_ = stopped_ || stop::leaving();
  switch (kind_of(words)) {
    case MessageKind::request:
      requested_[first] = static_cast<std::size_t>(words.at(2));
      break;
    case MessageKind::finished:
      served_ += served_by_[first] ? 0 : 1;
      served_by_[first] = true;
      requested_.erase(first);
      break;
    case MessageKind::encoded:
      receive_inputs(first, words.at(2) != 0);
      break;
    default:
      fail(Status::internal, "the text ranks got a control message of kind {}", words.front());
  }
  answer_requests();
}

void TextServer::receive_inputs(std::size_t batch, bool stops) {
  --inputs_awaited_;
  if (stops) {
    stopped_ = true;
    return;
  }
  work_.encode_inputs(batch, 0, 1)->finish();
  if (encoding_[batch] == Encoding::input_awaited) encoding_[batch] = Encoding::ready;
}

// Answers the requests for batches that are ready; if the job stops, all.
void TextServer::answer_requests() {
  for (const auto& [replica, batch] : std::map(requested_)) {
    if (stopped_ || encoding_[batch] == Encoding::ready) answer(replica, batch);
  }
}

void TextServer::answer(std::size_t replica, std::size_t batch) {
  Words words = control_message(MessageKind::reply, {stopped_ ? 1 : 0});
  if (!stopped_) append_flags(words, work_.failed(batch));
  mailbox_.post(schedule_.roles.denoise[replica].first, std::move(words));
  requested_.erase(replica);
  if (stopped_) return;
  work_.hand_over_text(batch, replica);
  work_.release(batch);
  waiting_bytes_ -= work_.embedding_bytes(batch);
  trace::recorder().clips_waiting -= static_cast<std::int64_t>(work_.clips(batch));
}

}  // namespace reelmesh::pipeline
