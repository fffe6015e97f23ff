#include "pipeline/split.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <optional>

#include "base/stop.hpp"
#include "comm/mailbox.hpp"

namespace reelmesh::pipeline {
namespace {

using Words = std::vector<std::int64_t>;

// Letters between the first ranks of two groups. The words after the kind:
enum Kind : std::int64_t {
  request,   // to the text ranks: replica, batch (or all_batches)
  offer,     // from the text ranks: all prompts are encoded, ask for the rest
  reply,     // from the text ranks: 1 if the job stops, 1 if these are the last; then per batch its
             // place and 1 for each clip that has failed. The embeddings follow.
  latents,   // to the decoding ranks: replica, batch, 1 for each clip that has failed. The latents
             // follow.
  finished,  // to both: replica. It takes no more batches.
};
constexpr std::int64_t all_batches = -1;

Words broadcast(const comm::Group& group, const Words& words, int root) {
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  const std::string text = group.broadcast({bytes, words.size() * sizeof(words[0])}, root);
  Words received(text.size() / sizeof(words[0]));
  std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(received.data()));
  return received;
}

void append_failed(Words& words, const BatchState& batch) {
  words.insert(words.end(), batch.failed.begin(), batch.failed.end());
}

// Reads the words of append_failed(). → the place after them.
std::size_t read_failed(const Words& words, std::size_t place, BatchState& batch) {
  for (std::size_t i = 0; i < batch.failed.size(); ++i) batch.failed[i] = words.at(place++) != 0;
  return place;
}

double seconds() { return 1e-9 * static_cast<double>(trace::now_ns()); }

// What one rank does in split mode. "Leader": the rank of a group that sends and receives letters;
// it decides what the others do.
class SplitRank {
 public:
  SplitRank(ClipMaker& maker, std::span<BatchState> batches, const std::vector<HelperRule>& rules,
            comm::Watchdog* watchdog);
  bool run();

 private:
  // Text ranks.
  void encode_and_serve();
  Words next_to_encode();
  void serve(const comm::Letter& letter);
  void answer(std::size_t replica, std::int64_t batch);
  void serve_the_rest();

  // Ranks of a replica.
  void make_batches();
  std::optional<std::size_t> next_batch();
  bool worth_taking(const comm::Taken& taken) const;
  void fetch(std::int64_t batch);
  void look_for_letters();
  void forget(const comm::Taken& taken);
  void make(std::size_t batch);

  // Decoding ranks.
  void decode_all();
  void decode_next();
  void decode(const Words& words);

  void sort(comm::Letter letter);
  bool helps() const { return replica_ && *replica_ >= replicas_ - roles_.helpers; }
  bool uses_queue() const { return watchdog_ != nullptr && watchdog_->has_queues(); }
  int first_rank(std::size_t replica) const { return roles_.denoise[replica].first; }

  ClipMaker& maker_;
  const Roles& roles_;
  std::span<BatchState> batches_;
  comm::Watchdog* watchdog_;
  comm::Mailbox mailbox_;
  std::size_t replicas_;
  int text_leader_, decode_leader_;     // ranks of the job
  std::optional<std::size_t> replica_;  // of this rank
  comm::Group group_;                   // of this rank's replica
  bool text_ = false, decodes_ = false;
  const HelperRule* rule_ = nullptr;
  bool stopped_ = false;

  // On the text leader.
  std::vector<bool> encoded_, sent_;               // per batch
  std::map<std::size_t, std::int64_t> requested_;  // by replicas that wait for an answer
  std::vector<bool> served_;                       // per replica: it asks for no more
  std::int64_t waiting_bytes_ = 0;                 // of embeddings that are encoded and not sent

  // On ranks of a replica.
  std::size_t turn_ = 0;        // batches taken
  bool has_all_ = false;        // embeddings of all batches that are left
  bool offered_ = false;        // on the leader
  std::optional<Words> reply_;  // on the leader
  std::deque<ClipMaker::ToDecoder> on_the_way_;
  double began_ = seconds();
  double own_seconds_ = 0, own_predicted_ = 0, own_of_others_ = 0;  // of this helper's batches

  // On the leader of the decoding ranks.
  std::deque<Words> arrived_;
  std::size_t replicas_at_work_ = 0;
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
      encoded_(batches.size()),
      sent_(batches.size()),
      served_(replicas_),
      replicas_at_work_(replicas_) {
  const int me = maker.world().rank();
  text_ = roles_.text.contains(me);
  decodes_ = roles_.decode.front().contains(me);
  for (std::size_t i = 0; i < replicas_; ++i) {
    if (roles_.denoise[i].contains(me)) replica_ = i;
  }
  if (replica_) group_ = maker.stages().denoise_batch.group(*replica_);
  if (helps()) rule_ = &rules[*replica_ - (replicas_ - roles_.helpers)];
  if (helps() && text_) served_[*replica_] = true;
  // They have restart files, from which replicas read the embeddings.
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (!batches[i].needs_text()) encoded_[i] = sent_[i] = true;
  }
}

bool SplitRank::run() {
  if (text_) encode_and_serve();
  if (decodes_) {
    decode_all();
  } else if (replica_) {
    make_batches();
  }
  return !stopped_;
}

// The text leader decides which batches are encoded next, and serves replicas in between.
void SplitRank::encode_and_serve() {
  const comm::Group& group = maker_.stages().encode.group();
  const int leader = text_leader_ - roles_.text.first;
  const bool leads = group.rank() == leader;
  if (std::ranges::any_of(batches_, &BatchState::needs_text)) maker_.stages().enter(Stages::text);
  while (!stopped_) {
    const Words next = broadcast(group, leads ? next_to_encode() : Words(), leader);
    if (next.empty()) break;
    for (const std::int64_t i : next) {
      BatchState& batch = batches_[static_cast<std::size_t>(i)];
      maker_.encode(batch);
      stopped_ = stopped_ || batch.stopped;
      if (!leads || stopped_) continue;
      encoded_[static_cast<std::size_t>(i)] = true;
      waiting_bytes_ += maker_.embedding_bytes(batch);
      while (const auto letter = mailbox_.poll()) serve(*letter);
      for (const auto& [replica, wanted] : std::map(requested_)) {
        if (wanted == i) answer(replica, wanted);
      }
    }
  }
  if (leads) serve_the_rest();
  stopped_ = group.max(std::int64_t{stopped_ ? 1 : 0}) > 0;
  // The rest, for the replica of the text ranks.
  if (!helps() || stopped_) return;
  Words left(batches_.size());
  for (std::size_t i = 0; i < batches_.size(); ++i) left[i] = encoded_[i] && !sent_[i] ? 1 : 0;
  left = broadcast(group, left, leader);
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    if (left[i] == 0) continue;
    Words failed;
    append_failed(failed, batches_[i]);
    read_failed(broadcast(group, failed, leader), 0, batches_[i]);
    maker_.condition(batches_[i], *replica_);
    std::ranges::fill(batches_[i].embeddings, Tensor());
  }
  has_all_ = true;
}

// Batches to encode: those that replicas wait for, then as many as the queue holds. Waits until
// there is room. None if all are encoded or the job stops.
Words SplitRank::next_to_encode() {
  constexpr std::size_t max_batches = 8;  // until letters are looked for again
  while (true) {
    while (const auto letter = mailbox_.poll()) serve(*letter);
    stopped_ = stopped_ || stop::requested();
    const bool all_encoded = std::ranges::find(encoded_, false) == encoded_.end();
    const bool all_served = std::ranges::find(served_, false) == served_.end();
    if (stopped_ || all_encoded || all_served) return {};
    Words next;
    const auto add = [&](std::size_t i) {
      const auto number = static_cast<std::int64_t>(i);
      if (!encoded_[i] && std::ranges::find(next, number) == next.end()) next.push_back(number);
    };
    for (const auto& [replica, batch] : requested_) {
      if (batch != all_batches) add(static_cast<std::size_t>(batch));
    }
    std::int64_t bytes = waiting_bytes_;
    for (std::size_t i = 0; i < batches_.size() && next.size() < max_batches; ++i) {
      if (encoded_[i]) continue;
      bytes += maker_.embedding_bytes(batches_[i]);
      if (bytes > maker_.plan().queue_bytes) break;
      add(i);
    }
    if (!next.empty()) return next;
    serve(mailbox_.wait());
  }
}

// Notes what a letter to the text ranks says, and answers it if that is possible.
void SplitRank::serve(const comm::Letter& letter) {
  const auto replica = static_cast<std::size_t>(letter.words.at(1));
  if (letter.words.front() == finished) {
    served_[replica] = true;
    requested_.erase(replica);
  } else if (letter.words.front() == request) {
    const std::int64_t batch = letter.words.at(2);
    requested_[replica] = batch;
    const bool ready = batch != all_batches && encoded_[static_cast<std::size_t>(batch)];
    if (ready || stopped_) answer(replica, batch);
  }
}

// Sends a batch's embeddings, or those of all batches that are left; or that the job stops.
void SplitRank::answer(std::size_t replica, std::int64_t batch) {
  const bool last = batch == all_batches;
  Words words{reply, stopped_ ? 1 : 0, last ? 1 : 0};
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < batches_.size() && !stopped_; ++i) {
    if (last ? sent_[i] : i != static_cast<std::size_t>(batch)) continue;
    places.push_back(i);
    words.push_back(static_cast<std::int64_t>(i));
    append_failed(words, batches_[i]);
  }
  mailbox_.post(first_rank(replica), std::move(words));
  for (const std::size_t i : places) {
    maker_.condition(batches_[i], replica);
    if (last) continue;
    std::ranges::fill(batches_[i].embeddings, Tensor());
    sent_[i] = true;
    waiting_bytes_ -= maker_.embedding_bytes(batches_[i]);
  }
  requested_.erase(replica);
  served_[replica] = served_[replica] || last || stopped_;
}

// When all prompts are encoded. If the text ranks denoise from now on, the embeddings that are left
// go to all replicas, one of which will take them; otherwise replicas go on asking.
void SplitRank::serve_the_rest() {
  const bool leaves = helps() && uses_queue() && !stopped_;
  const auto others = [&](const auto& act) {
    for (std::size_t i = 0; i < replicas_; ++i) {
      if (!served_[i]) act(i);
    }
  };
  if (leaves) others([&](std::size_t i) { mailbox_.post(first_rank(i), {offer}); });
  for (const auto& [replica, batch] : std::map(requested_)) {
    if (stopped_) answer(replica, batch);
  }
  while (std::ranges::find(served_, false) != served_.end()) {
    if (leaves) {
      others([&](std::size_t i) {
        if (requested_.contains(i)) answer(i, all_batches);
      });
      if (std::ranges::find(served_, false) == served_.end()) break;
    }
    const comm::Letter letter = mailbox_.wait();
    stopped_ = stopped_ || stop::requested();
    serve(letter);
  }
}

// Sorts a letter to a replica or to the decoding ranks.
void SplitRank::sort(comm::Letter letter) {
  switch (letter.words.front()) {
    case offer:
      offered_ = true;
      break;
    case reply:
      reply_ = std::move(letter.words);
      break;
    case latents:
      arrived_.push_back(std::move(letter.words));
      break;
    case finished:
      --replicas_at_work_;
      break;
    default:
      fail(Status::internal, "a letter of kind {}", letter.words.front());
  }
}

void SplitRank::make_batches() {
  while (const auto batch = next_batch()) make(*batch);
  const bool leads = group_.rank() == 0;
  const auto replica = static_cast<std::int64_t>(*replica_);
  if (leads && !has_all_) mailbox_.post(text_leader_, {finished, replica});
  if (leads && !decodes_) mailbox_.post(decode_leader_, {finished, replica});
  for (ClipMaker::ToDecoder& pending : on_the_way_) pending.finish();
  on_the_way_.clear();
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
  if (group_.rank() == 0 && uses_queue()) {
    if (!helps()) {
      taken = watchdog_->take(0, comm::End::front);
      next = taken.front;
    } else if (worth_taking(watchdog_->take(0, comm::End::none))) {
      taken = watchdog_->take(0, comm::End::back);
      next = all - 1 - taken.back;
    }
    if (taken.front + taken.back >= all) next = all;
  } else if (group_.rank() == 0 && !helps()) {
    next = static_cast<std::int64_t>(*replica_ + turn_ * (replicas_ - roles_.helpers));
    taken = {next, 0};
  }
  ++turn_;
  std::array<std::int64_t, 4> votes{};
  if (group_.rank() == 0) votes = {0, std::min(next, all), taken.front, taken.back};
  votes[0] = stopped_ || stop::requested() ? 1 : 0;
  group_.max(votes);
  stopped_ = votes[0] > 0;
  if (stopped_ || votes[1] >= all) return std::nullopt;
  forget({votes[2], votes[3]});
  return static_cast<std::size_t>(votes[1]);
}

// Frees the embeddings of batches that other replicas have taken.
void SplitRank::forget(const comm::Taken& taken) {
  if (!has_all_) return;
  const std::size_t front = std::min(static_cast<std::size_t>(taken.front), batches_.size());
  const std::size_t back = std::min(static_cast<std::size_t>(taken.back), batches_.size());
  for (std::size_t i = 0; i < front; ++i) batches_[i].release();
  for (std::size_t i = batches_.size() - back; i < batches_.size(); ++i) batches_[i].release();
}

// Gets the embeddings of a batch, or of all that are left, from the text ranks.
void SplitRank::fetch(std::int64_t batch) {
  if (group_.rank() == 0) {
    mailbox_.post(text_leader_, {request, static_cast<std::int64_t>(*replica_), batch});
    while (!reply_) sort(mailbox_.wait());
  }
  const Words words = broadcast(group_, reply_.value_or(Words()), 0);
  reply_.reset();
  stopped_ = stopped_ || words.at(1) != 0;
  has_all_ = words.at(2) != 0;
  for (std::size_t place = 3; place < words.size();) {
    BatchState& next = batches_[static_cast<std::size_t>(words[place])];
    place = read_failed(words, place + 1, next);
    maker_.condition(next, *replica_);
  }
}

void SplitRank::make(std::size_t place) {
  BatchState& batch = batches_[place];
  const double began = seconds();
  maker_.stages().enter(Stages::denoise);
  if (batch.needs_text() && !has_all_) fetch(static_cast<std::int64_t>(place));
  if (stopped_) return;
  maker_.denoise(batch, *replica_, [this] { look_for_letters(); });
  stopped_ = stopped_ || batch.stopped;
  if (stopped_) return;
  // At most two batches are on their way: then decoding is slower than denoising.
  if (on_the_way_.size() == 2) {
    on_the_way_.front().finish();
    on_the_way_.pop_front();
  }
  if (group_.rank() == 0 && !decodes_) {
    Words words{latents, static_cast<std::int64_t>(*replica_), static_cast<std::int64_t>(place)};
    append_failed(words, batch);
    mailbox_.post(decode_leader_, std::move(words));
  }
  ClipMaker::ToDecoder pending = maker_.to_decoder(batch, *replica_);
  if (decodes_) {
    maker_.stages().enter(Stages::decode);
    maker_.decode(batch, *replica_, std::move(pending));
  } else {
    on_the_way_.push_back(std::move(pending));
  }
  batch.release();
  if (!helps()) return;
  own_seconds_ += seconds() - began;
  own_predicted_ += rule_->own_time(batches_.size() - 1 - place);
  own_of_others_ += rule_->others_time(place, place + 1);
}

// Between two steps of a replica: takes the rest of the embeddings when they are offered, and on
// decoding ranks decodes what has arrived.
void SplitRank::look_for_letters() {
  while (auto letter = mailbox_.poll()) sort(std::move(*letter));
  if (has_all_ && !decodes_) return;
  std::array<std::int64_t, 2> found{offered_ && !has_all_ ? 1 : 0, std::ssize(arrived_)};
  group_.max(found);
  if (found[0] > 0) fetch(all_batches);
  if (found[1] == 0) return;
  for (; found[1] > 0; --found[1]) decode_next();
  maker_.stages().enter(Stages::denoise);
}

// Decodes what arrives until all replicas have finished, and makes batches while nothing waits.
void SplitRank::decode_all() {
  const comm::Group& group = maker_.stages().decode_clip.group(0);
  const bool leads = group.rank() == 0;
  bool takes = helps() && uses_queue();
  const auto take_no_more = [&] {
    takes = false;
    --replicas_at_work_;
    if (leads && !has_all_) {
      mailbox_.post(text_leader_, {finished, static_cast<std::int64_t>(*replica_)});
    }
  };
  if (helps() && !takes) take_no_more();
  maker_.stages().enter(Stages::decode);
  while (true) {
    enum Action : std::int64_t { decode_one, take, end };
    std::int64_t action = end;
    if (leads) {
      while (auto letter = mailbox_.poll()) sort(std::move(*letter));
      while (arrived_.empty() && !takes && replicas_at_work_ > 0) sort(mailbox_.wait());
      action = !arrived_.empty() ? decode_one : takes ? take : end;
    }
    action = broadcast(group, {action}, 0).front();
    if (action == end) break;
    if (action == decode_one) {
      decode_next();
      continue;
    }
    const auto batch = next_batch();
    if (batch) make(*batch);
    if (!batch || stopped_) take_no_more();
  }
}

// Receives the latents that arrived first, and decodes them, unless the job stops: clips whose
// denoising took long are saved by their replica.
void SplitRank::decode_next() {
  const comm::Group& group = maker_.stages().decode_clip.group(0);
  Words words;
  if (group.rank() == 0) {
    words = std::move(arrived_.front());
    arrived_.pop_front();
    words.front() = stop::requested() ? 1 : 0;
  }
  words = broadcast(group, words, 0);
  const auto replica = static_cast<std::size_t>(words.at(1));
  BatchState& batch = batches_[static_cast<std::size_t>(words.at(2))];
  read_failed(words, 3, batch);
  ClipMaker::ToDecoder pending = maker_.to_decoder(batch, replica);
  if (words.front() != 0) {
    stopped_ = true;
    pending.finish();
    return;
  }
  maker_.stages().enter(Stages::decode);
  maker_.decode(batch, replica, std::move(pending));
}

}  // namespace

bool make_split(ClipMaker& maker, std::span<BatchState> batches,
                const std::vector<HelperRule>& rules, comm::Watchdog* watchdog) {
  return SplitRank(maker, batches, rules, watchdog).run();
}

}  // namespace reelmesh::pipeline
