#include "pipeline/split.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "base/stop.hpp"
#include "pipeline/text_server.hpp"

namespace reelmesh::pipeline {
namespace {

// Queues of the watchdog: the batches; and how many batches the decoding ranks were sent to decode
// or began to make themselves (front), and have done (back).
constexpr int batch_queue = 0, decoding_queue = 1;

double seconds() { return 1e-9 * static_cast<double>(trace::now_ns()); }

// What one rank does in split mode. A leader waits for other groups by waiting for control
// messages, so that the text leader answers requests meanwhile.
class SplitRank {
 public:
  SplitRank(ClipMaker& maker, std::span<BatchState> batches, const std::vector<HelperRule>& rules,
            comm::Watchdog* watchdog);
  bool run();

 private:
  // Ranks of a replica.
  void make_batches();
  void take_no_more();
  std::optional<std::size_t> next_batch();
  bool worth_taking(const comm::Taken& taken) const;
  void forget(const comm::Taken& taken);
  void fetch(std::size_t batch);
  void make(std::size_t batch);
  void handle_between_steps();
  void pass_on(std::size_t batch);

  // Decoding ranks.
  void decode_all();
  void decode_next();
  void encode_next();
  void count_decoding(comm::End end);
  std::int64_t announced_clips(const Words& latents) const;

  void handle(comm::ControlMessage message);
  void handle_arrived();
  bool helps() const { return replica_ && *replica_ >= roles_.first_helper(); }
  bool uses_queues() const { return watchdog_ != nullptr && watchdog_->has_queues(); }
  std::int64_t own_number() const { return static_cast<std::int64_t>(*replica_); }

  ClipMaker& maker_;
  const Roles& roles_;
  std::span<BatchState> batches_;
  comm::Watchdog* watchdog_;
  comm::Mailbox mailbox_;
  std::size_t replicas_;
  int text_leader_, decode_leader_;     // ranks of the job
  std::optional<std::size_t> replica_;  // of this rank
  std::optional<TextServer> text_;      // on text ranks
  bool decodes_;                        // on decoding ranks
  bool stopped_ = false;

  // On ranks of a replica.
  comm::Group group_;
  int leader_ = 0;                    // rank of group_
  bool leads_ = false;                // whether this rank is the leader
  const HelperRule* rule_ = nullptr;  // of a helper
  std::size_t turn_ = 0;              // batches taken
  bool has_all_ = false;              // embeddings of all batches that are left
  comm::Taken forgotten_;             // by forget(), of these
  bool kept_all_ = false;
  std::optional<Words> reply_;     // on the leader
  std::int64_t not_accepted_ = 0;  // on the leader: batches sent to the decoding ranks
  std::deque<ClipMaker::LatentsHandOver> latents_hand_overs_;
  double began_ = seconds();
  double own_seconds_ = 0, own_predicted_ = 0, own_of_others_ = 0;  // of this helper's batches

  // On the decoding ranks.
  std::deque<Words> arrived_;     // on the leader: latents to decode, inputs to encode
  std::size_t replicas_at_work_;  // on the leader
  bool inputs_left_;              // on the leader: the text ranks may send more to encode
  std::deque<ClipMaker::InputsHandOver> inputs_hand_overs_;
};

SplitRank::SplitRank(ClipMaker& maker, std::span<BatchState> batches,
                     const std::vector<HelperRule>& rules, comm::Watchdog* watchdog)
    : maker_(maker),
      roles_(maker.plan().roles),
      batches_(batches),
      watchdog_(watchdog),
      mailbox_(maker.world()),
      replicas_(roles_.denoise.size()),
      text_leader_(maker.plan().embeddings_rank()),
      decode_leader_(roles_.decode.front().first),
      decodes_(roles_.decode.front().contains(maker.world().rank())),
      replicas_at_work_(replicas_),
      inputs_left_(std::ranges::any_of(batches, &BatchState::needs_input)) {
  const int me = maker.world().rank();
  for (std::size_t i = 0; i < replicas_; ++i) {
    if (roles_.denoise[i].contains(me)) replica_ = i;
  }
  if (roles_.text.contains(me)) text_.emplace(maker, batches, mailbox_, replica_);
  if (!replica_) return;
  group_ = maker.stages().denoise_batch.group(*replica_);
  leader_ = replica_leader(maker.plan(), *replica_) - roles_.denoise[*replica_].first;
  leads_ = group_.rank() == leader_;
  if (helps()) rule_ = &rules[*replica_ - roles_.first_helper()];
}

bool SplitRank::run() {
  if (text_) {
    stopped_ = !text_->encode_all();
    has_all_ = helps() && uses_queues() && !stopped_;
    if (has_all_) text_->begin_helping();
  }
  if (decodes_) {
    decode_all();
  } else if (replica_) {
    make_batches();
  }
  if (text_) text_->serve_all(stopped_);
  return !stopped_;
}

void SplitRank::handle(comm::ControlMessage message) {
  switch (message_kind(message)) {
    case MessageKind::request:
      return text_.value().receive(message);
    case MessageKind::reply:
      reply_ = std::move(message.words);
      return;
    case MessageKind::latents:
      trace::recorder().clips_waiting += announced_clips(message.words);
      arrived_.push_back(std::move(message.words));
      return;
    case MessageKind::accepted:
      --not_accepted_;
      return;
    case MessageKind::finished:
      if (text_) return text_->receive(message);
      --replicas_at_work_;
      return;
    case MessageKind::encode:
      arrived_.push_back(std::move(message.words));
      return;
    case MessageKind::encoded:
      return text_.value().receive(message);
  }
  fail(Status::internal, "a control message of kind {}", message.words.front());
}

void SplitRank::handle_arrived() {
  while (auto message = mailbox_.poll()) handle(std::move(*message));
}

void SplitRank::make_batches() {
  while (const auto batch = next_batch()) make(*batch);
  take_no_more();
  if (leads_) {
    mailbox_.post(decode_leader_, control_message(MessageKind::finished, {own_number()}));
    while (not_accepted_ > 0) handle(mailbox_.wait());
  }
  for (ClipMaker::LatentsHandOver& hand_over : latents_hand_overs_) hand_over.finish();
  latents_hand_overs_.clear();
}

// After the last batch of a replica. The text ranks need not wait for its requests.
void SplitRank::take_no_more() {
  if (!leads_ || has_all_ || text_) return;
  mailbox_.post(text_leader_, control_message(MessageKind::finished, {own_number()}));
}

// Whether the ranks of a helper should take a further batch, by predicted times, corrected by those
// that were seen.
bool SplitRank::worth_taking(const comm::Taken& taken) const {
  const auto front = static_cast<std::size_t>(taken.front);
  const auto back = static_cast<std::size_t>(taken.back);
  const std::size_t all = rule_->tasks();
  if (front + back >= all) return false;
  double own_factor = 1, others_factor = 1;
  const double by_others =
      rule_->others_time(0, front) + rule_->others_time(all - back, all) - own_of_others_;
  // The others are within a batch each: few batches tell little of their speed.
  if (own_predicted_ > 0 && front + back > 3 * replicas_ && by_others > 0) {
    own_factor = own_seconds_ / own_predicted_;
    others_factor = (seconds() - began_) / by_others;
  }
  return rule_->takes(front, back, own_factor, others_factor);
}

// The batch that this rank's replica makes next, the same on all its ranks.
std::optional<std::size_t> SplitRank::next_batch() {
  const auto all = static_cast<std::int64_t>(batches_.size());
  comm::Taken taken{all, 0};  // nothing left
  std::int64_t next = all;
  if (leads_ && uses_queues()) {
    if (!helps() || !rule_->slower()) {
      taken = watchdog_->take(batch_queue, comm::End::front);
      next = taken.front;
    } else if (worth_taking(watchdog_->take(batch_queue, comm::End::none))) {
      taken = watchdog_->take(batch_queue, comm::End::back);
      next = all - 1 - taken.back;
    }
    if (taken.front + taken.back >= all) next = all;
  } else if (leads_ && !helps()) {
    next = static_cast<std::int64_t>(*replica_ + turn_ * roles_.first_helper());
    taken = {next, 0};
  }
  ++turn_;
  std::array<std::int64_t, 4> votes{};
  if (leads_) votes = {0, std::min(next, all), taken.front, taken.back};
  votes[0] = stopped_ || stop::requested() ? 1 : 0;
  group_.max(votes);
  stopped_ = votes[0] > 0;
  if (stopped_ || votes[1] >= all) return std::nullopt;
  forget({votes[2], votes[3]});
  const auto batch = static_cast<std::size_t>(votes[1]);
  if (text_) text_->keep(batch);
  return batch;
}

// Frees the embeddings of batches that other replicas have taken. The text leader keeps them as
// long as one of these may still ask for them.
void SplitRank::forget(const comm::Taken& taken) {
  if (!has_all_) return;
  const bool keeps_all = text_ && !text_->all_served();
  if (kept_all_ && !keeps_all) forgotten_ = {};
  kept_all_ = keeps_all;
  const auto forget_one = [&](std::int64_t index) {
    BatchState& batch = batches_[static_cast<std::size_t>(index)];
    if (keeps_all) {
      batch.release_conditioning();
    } else {
      batch.release();
    }
  };
  const auto all = static_cast<std::int64_t>(batches_.size());
  for (; forgotten_.front < std::min(taken.front, all); ++forgotten_.front) {
    forget_one(forgotten_.front);
  }
  for (; forgotten_.back < std::min(taken.back, all); ++forgotten_.back) {
    forget_one(all - 1 - forgotten_.back);
  }
}

// Gets the embeddings of a batch from the text ranks, or of all batches that are left.
void SplitRank::fetch(std::size_t batch) {
  if (leads_) {
    const auto number = static_cast<std::int64_t>(batch);
    mailbox_.post(text_leader_, control_message(MessageKind::request, {own_number(), number}));
    while (!reply_) handle(mailbox_.wait());
  }
  const Words words = broadcast(group_, reply_.value_or(Words()), leader_);
  reply_.reset();
  stopped_ = stopped_ || words.at(1) != 0;
  has_all_ = words.at(2) != 0;
  for (std::size_t position = 3; position < words.size();) {
    BatchState& next = batches_[static_cast<std::size_t>(words[position])];
    position = read_failed(words, position + 1, next);
    maker_.condition(next, *replica_);
  }
}

void SplitRank::make(std::size_t index) {
  BatchState& batch = batches_[index];
  const double began = seconds();
  maker_.stages().enter(Stages::denoise);
  if (batch.needs_text() && !has_all_) fetch(index);
  if (stopped_) return;
  maker_.denoise(batch, *replica_, [this] { handle_between_steps(); });
  stopped_ = stopped_ || batch.stopped;
  if (stopped_) return;
  pass_on(index);
  batch.release();
  if (!helps()) return;
  own_seconds_ += seconds() - began;
  own_predicted_ += rule_->own_time(batches_.size() - 1 - index);
  own_of_others_ += rule_->others_time(index, index + 1);
}

// Sends a batch to the decoding ranks; or decodes it if they are busy, which also lets all ranks
// end at about the same time.
void SplitRank::pass_on(std::size_t index) {
  BatchState& batch = batches_[index];
  const auto own = roles_.own_decoder(*replica_);
  bool decodes = decodes_;
  if (!decodes && own && uses_queues()) {
    std::int64_t busy = 0;
    if (leads_) {
      const comm::Taken sent = watchdog_->take(decoding_queue, comm::End::none);
      busy = sent.front > sent.back ? 1 : 0;
      if (busy == 0) watchdog_->take(decoding_queue, comm::End::front);
    }
    decodes = group_.max(busy) > 0;
  }
  if (decodes) {
    maker_.stages().enter(Stages::decode);
    maker_.decode(batch, *own, maker_.hand_over_latents(batch, *replica_, *own));
    return;
  }
  constexpr int max_hand_overs = 2;
  if (leads_) {
    while (not_accepted_ == max_hand_overs) handle(mailbox_.wait());
    Words words =
        control_message(MessageKind::latents, {own_number(), static_cast<std::int64_t>(index)});
    append_failed(words, batch);
    mailbox_.post(decode_leader_, std::move(words));
    ++not_accepted_;
  }
  latents_hand_overs_.push_back(maker_.hand_over_latents(batch, *replica_, 0));
  if (std::ssize(latents_hand_overs_) <= max_hand_overs) return;
  latents_hand_overs_.front().finish();
  latents_hand_overs_.pop_front();
}

// Between two steps of a replica: the text leader answers requests, and decoding ranks decode what
// has arrived.
void SplitRank::handle_between_steps() {
  handle_arrived();
  if (!decodes_) return;
  std::int64_t arrived = group_.max(std::int64_t{std::ssize(arrived_)});
  if (arrived == 0) return;
  for (; arrived > 0; --arrived) decode_next();
  maker_.stages().enter(Stages::denoise);
}

// Decodes what arrives until all replicas have finished, encodes inputs as the text ranks ask for
// them, and, when none are left, makes batches while nothing waits.
void SplitRank::decode_all() {
  const comm::Group& group = maker_.stages().decode_clip.group(0);
  const bool leads = group.rank() == 0;
  bool takes = helps() && uses_queues();
  const auto end_taking = [&] {
    take_no_more();
    takes = false;
    --replicas_at_work_;
  };
  if (helps() && !takes) end_taking();
  if (!inputs_left_) maker_.stages().enter(Stages::decode);
  while (true) {
    enum Action : std::int64_t { encode_one, decode_one, take, end };
    std::int64_t action = end;
    if (leads) {
      handle_arrived();
      while (arrived_.empty() && (inputs_left_ || (!takes && replicas_at_work_ > 0))) {
        handle(mailbox_.wait());
      }
      if (!arrived_.empty()) {
        const bool input =
            arrived_.front().front() == static_cast<std::int64_t>(MessageKind::encode);
        action = input ? encode_one : decode_one;
      } else if (takes) {
        action = take;
      }
    }
    action = broadcast(group, {action}, 0).front();
    if (action == end) break;
    if (action == encode_one) {
      encode_next();
      continue;
    }
    if (action == decode_one) {
      decode_next();
      continue;
    }
    const auto batch = next_batch();
    if (batch) {
      // A clip of these ranks that others interrupt would be the last one of the job.
      count_decoding(comm::End::front);
      make(*batch);
      count_decoding(comm::End::back);
    }
    if (!batch || stopped_) end_taking();
  }
}

// How many clips a message of latents announces.
std::int64_t SplitRank::announced_clips(const Words& latents) const {
  return std::ssize(batches_[static_cast<std::size_t>(latents.at(2))].outline);
}

// Counts work that the decoding ranks begin (End::front) or have done (End::back).
void SplitRank::count_decoding(comm::End end) {
  const bool leads = maker_.world().rank() == decode_leader_;
  if (leads && uses_queues()) watchdog_->take(decoding_queue, end);
}

// Receives the latents that arrived first, and decodes them, unless the job stops: clips whose
// denoising took long are saved by their replica.
void SplitRank::decode_next() {
  const comm::Group& group = maker_.stages().decode_clip.group(0);
  Words words;
  if (group.rank() == 0) {
    words = std::move(arrived_.front());
    arrived_.pop_front();
    trace::recorder().clips_waiting -= announced_clips(words);
    words.front() = stop::requested() ? 1 : 0;
    const auto replica = static_cast<std::size_t>(words.at(1));
    mailbox_.post(replica_leader(maker_.plan(), replica), control_message(MessageKind::accepted));
  }
  words = broadcast(group, words, 0);
  const auto replica = static_cast<std::size_t>(words.at(1));
  BatchState& batch = batches_[static_cast<std::size_t>(words.at(2))];
  read_failed(words, 3, batch);
  ClipMaker::LatentsHandOver hand_over = maker_.hand_over_latents(batch, replica, 0);
  if (words.front() != 0) {
    stopped_ = true;
    hand_over.finish();
    return;
  }
  maker_.stages().enter(Stages::decode);
  maker_.decode(batch, 0, std::move(hand_over));
  batch.release();
  count_decoding(comm::End::back);
}

// Encodes the inputs that were asked for first, unless the job stops. The text ranks receive them
// when they are not at work.
void SplitRank::encode_next() {
  const comm::Group& group = maker_.stages().decode_clip.group(0);
  constexpr std::size_t max_hand_overs = 2;
  Words words;
  if (group.rank() == 0) {
    words = std::move(arrived_.front());
    arrived_.pop_front();
    words.front() = stopped_ || stop::requested() ? 1 : 0;
  }
  words = broadcast(group, words, 0);
  const bool stops = words.at(0) != 0;
  if (words.at(1) < 0) {
    inputs_left_ = false;
    for (ClipMaker::InputsHandOver& hand_over : inputs_hand_overs_) hand_over.finish();
    inputs_hand_overs_.clear();
    maker_.stages().leave_input();
    return;
  }
  if (!stops) {
    maker_.stages().enter(Stages::input);
    inputs_hand_overs_.push_back(
        maker_.encode_inputs(batches_[static_cast<std::size_t>(words.at(1))], 0, 1));
  }
  if (group.rank() == 0) {
    mailbox_.post(text_leader_,
                  control_message(MessageKind::encoded, {words.at(1), stops ? 1 : 0}));
  }
  if (inputs_hand_overs_.size() <= max_hand_overs) return;
  inputs_hand_overs_.front().finish();
  inputs_hand_overs_.pop_front();
}

}  // namespace

bool make_split(ClipMaker& maker, std::span<BatchState> batches,
                const std::vector<HelperRule>& rules, comm::Watchdog* watchdog) {
  return SplitRank(maker, batches, rules, watchdog).run();
}

}  // namespace reelmesh::pipeline
