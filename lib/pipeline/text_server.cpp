#include "pipeline/text_server.hpp"

#include "base/stop.hpp"

namespace reelmesh::pipeline {

TextServer::TextServer(ClipMaker& maker, std::span<BatchState> batches, comm::Mailbox& mailbox,
                       std::optional<std::size_t> replica)
    : maker_(maker),
      batches_(batches),
      mailbox_(mailbox),
      group_(maker.stages().encode.group()),
      replica_(replica),
      leader_(maker.plan().embeddings_rank() - maker.plan().roles.text.first),
      leads_(group_.rank() == leader_),
      decode_leader_(maker.plan().roles.decode.front().first),
      encoded_(batches.size()),
      sent_(batches.size()),
      awaits_input_(batches.size()),
      served_(maker.plan().roles.denoise.size(), !leads_) {
  if (replica_) served_[*replica_] = true;
  // They have restart files, from which replicas read the embeddings.
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (!batches[i].needs_text()) encoded_[i] = sent_[i] = true;
  }
}

// The leader decides which batches are encoded next, and answers replicas in between.
bool TextServer::encode_all() {
  if (std::ranges::any_of(batches_, &BatchState::needs_text)) maker_.stages().enter(Stages::text);
  while (!stopped_) {
    const Words next = broadcast(group_, leads_ ? next_to_encode() : Words(), leader_);
    if (next.empty()) break;
    for (const std::int64_t number : next) {
      const auto i = static_cast<std::size_t>(number);
      if (leads_ && batches_[i].needs_input()) {
        awaits_input_[i] = true;
        ++inputs_awaited_;
        mailbox_.post(decode_leader_, control_message(MessageKind::encode, {number}));
      }
      maker_.encode(batches_[i]);
      stopped_ = stopped_ || batches_[i].stopped;
      if (!leads_) batches_[i].release();  // its embeddings are on the leader
      if (!leads_ || stopped_) continue;
      encoded_[i] = true;
      waiting_bytes_ += maker_.embedding_bytes(batches_[i]);
      trace::recorder().clips_waiting += std::ssize(batches_[i].outline);
      answer_requests();
      while (const auto message = mailbox_.poll()) receive(*message);
    }
  }
  if (leads_ && std::ranges::any_of(batches_, &BatchState::needs_input)) {
    while (inputs_awaited_ > 0) receive(mailbox_.wait());
    mailbox_.post(decode_leader_, control_message(MessageKind::encode, {-1}));
  }
  stopped_ = group_.max(std::int64_t{stopped_ ? 1 : 0}) > 0;
  return !stopped_;
}

// Waits until there is room in the queue. None if all are encoded or the job stops.
Words TextServer::next_to_encode() {
  constexpr std::size_t max_batches = 8;  // until the leader decides again
  while (true) {
    while (const auto message = mailbox_.poll()) receive(*message);
    stopped_ = stopped_ || stop::requested() || decoders_stop_;
    while (first_left_ < encoded_.size() && encoded_[first_left_]) ++first_left_;
    const bool all_encoded = first_left_ == encoded_.size() && inputs_awaited_ == 0;
    if (stopped_ || all_encoded || all_served()) return {};
    Words next;
    const auto add = [&](std::size_t i) {
      const auto number = static_cast<std::int64_t>(i);
      if (!encoded_[i] && std::ranges::find(next, number) == next.end()) next.push_back(number);
    };
    for (const auto& [replica, batch] : requested_) add(batch);
    std::int64_t bytes = waiting_bytes_;
    for (std::size_t i = first_left_; i < batches_.size() && next.size() < max_batches; ++i) {
      if (encoded_[i]) continue;
      bytes += maker_.embedding_bytes(batches_[i]);
      if (bytes > maker_.plan().queue_bytes) break;
      add(i);
    }
    if (!next.empty()) return next;
    receive(mailbox_.wait());
  }
}

void TextServer::receive(const comm::ControlMessage& message) {
  if (message_kind(message) == MessageKind::encoded) {
    receive_inputs(message.words);
    return answer_requests();
  }
  const auto replica = static_cast<std::size_t>(message.words.at(1));
  if (message_kind(message) == MessageKind::finished) {
    served_[replica] = true;
    requested_.erase(replica);
  } else {
    requested_[replica] = static_cast<std::size_t>(message.words.at(2));
  }
  answer_requests();
}

void TextServer::receive_inputs(const Words& words) {
  const auto batch = static_cast<std::size_t>(words.at(1));
  awaits_input_[batch] = false;
  --inputs_awaited_;
  if (words.at(2) != 0) {
    decoders_stop_ = true;
  } else {
    maker_.encode_inputs(batches_[batch], 0, 1).finish();
  }
}

// Answers the requests for batches that are encoded; if the job stops, all.
void TextServer::answer_requests() {
  for (const auto& [replica, batch] : std::map(requested_)) {
    if (stopped_ || (ready(batch) && !decoders_stop_)) answer(replica, batch);
  }
}

void TextServer::answer(std::size_t replica, std::size_t batch) {
  Words words = control_message(MessageKind::reply, {stopped_ ? 1 : 0, helps_ ? 1 : 0});
  std::vector<std::size_t> indices;
  const std::size_t first = helps_ ? 0 : batch, end = helps_ ? batches_.size() : batch + 1;
  for (std::size_t i = first; i < end && !stopped_; ++i) {
    if (helps_ && sent_[i]) continue;
    indices.push_back(i);
    words.push_back(static_cast<std::int64_t>(i));
    append_failed(words, batches_[i]);
  }
  mailbox_.post(replica_leader(maker_.plan(), replica), std::move(words));
  for (const std::size_t i : indices) {
    maker_.condition(batches_[i], replica);
    if (helps_) continue;  // others may ask for it, too
    batches_[i].release();
    sent_[i] = true;
    waiting_bytes_ -= maker_.embedding_bytes(batches_[i]);
    trace::recorder().clips_waiting -= std::ssize(batches_[i].outline);
  }
  requested_.erase(replica);
  served_[replica] = served_[replica] || helps_ || stopped_;
  if (!helps_ || !all_served()) return;
  for (BatchState& left : batches_) left.release_encoded();
}

void TextServer::begin_helping() {
  Words left(batches_.size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = encoded_[i] && !sent_[i] ? 1 : 0;
  left = broadcast(group_, left, leader_);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == 0) continue;
    Words failed;
    append_failed(failed, batches_[i]);
    read_failed(broadcast(group_, failed, leader_), 0, batches_[i]);
    maker_.condition(batches_[i], *replica_);
  }
  helps_ = true;
}

void TextServer::serve_all(bool stopped) {
  stopped_ = stopped_ || stopped || stop::requested();
  answer_requests();
  while (!all_served()) {
    const comm::ControlMessage message = mailbox_.wait();
    stopped_ = stopped_ || stop::requested();
    receive(message);
  }
  trace::recorder().clips_waiting = 0;  // helpers have not asked for each batch
}

}  // namespace reelmesh::pipeline
