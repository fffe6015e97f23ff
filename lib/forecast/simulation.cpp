#include "forecast/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <random>

#include "base/error.hpp"
#include "base/number.hpp"
#include "base/stop.hpp"
#include "base/units.hpp"
#include "plan/queues.hpp"

namespace reelmesh {
namespace {

constexpr std::size_t max_failures = 1000;
constexpr double no_failure = std::numeric_limits<double>::infinity();

std::int64_t nanoseconds(double seconds) { return to_integer(std::round(1e9 * seconds)); }

// What of a batch is still to be made.
struct Batch {
  BatchOutline clips;
  std::int64_t saved = 0;  // completed steps
  bool begun() const { return saved > 0; }
};

class Simulator {
 public:
  Simulator(const JobPlan& planned, const JobLayout& layout, std::vector<BatchOutline> batches,
            const SimulatedFailures& failures, std::int64_t max_spans)
      : planned_(planned),
        layout_(layout),
        failures_(failures),
        touched_(static_cast<std::size_t>(layout.plan.ranks)),
        loading_(touched_.size()),
        free_(touched_.size()),
        expert_(touched_.size(), -1) {
    for (BatchOutline& clips : in_order(planned, layout, std::move(batches))) {
      const std::int64_t saved = clips.front().saved_step;
      batches_.push_back({std::move(clips), saved});
    }
    result_.begin = no_failure;
    if (max_spans == 0) return;
    result_.spans.resize(free_.size());
    result_.whole_batches = step_spans() > static_cast<double>(max_spans);
  }

  Simulation run();

 private:
  double step_spans() const;
  double next_failure(double begin);
  void start(double begin);
  void use(const Plan& plan);
  void add(int rank, const trace::SpanKind& kind, double start, double end, int clip = -1,
           int step = -1, const StepCost& cost = {});
  double wait_for(const RankRange& ranks);
  void pass(const RankRange& ranks, const trace::SpanKind& kind, double seconds, int clip);
  void load(const LoadedWeights& weights, const RankRange& ranks);
  void load_transformer(const RankRange& ranks);
  double enter_expert(int expert, const RankRange& ranks, double now);
  double touching(int rank, const LoadedWeights& weights);
  std::int64_t embedding_bytes(std::size_t batch) const;
  double encode(const Batch& batch);
  void encode_inputs(std::size_t first, std::size_t end);
  void add_step(const Batch& batch, std::size_t replica, const trace::SpanKind& kind, double begin,
                double end, int step, bool costs);
  double denoise(Batch& batch, std::size_t replica);
  double decode(Batch& batch, std::size_t decoder);
  void encode_round(const Round& round);
  void run_phased();
  void make(std::size_t first, std::size_t end);
  double embeddings_ready(std::size_t batch, double now);
  void run_split();

  RankRange all() const { return {0, layout_.plan.ranks}; }
  std::size_t size_of(const Batch& batch) const { return planned_.size_index(batch.clips.front()); }
  const Clip& kind_of(const Batch& batch) const { return planned_.kinds[batch.clips.front().kind]; }

  const JobPlan& planned_;
  const JobLayout& layout_;
  const SimulatedFailures failures_;
  std::mt19937_64 random_;
  std::vector<Batch> batches_;
  std::map<ModelPart, double> disk_;   // seconds of what the system does not have in memory yet
  double disk_free_ = 0;               // when it has given what was asked for
  const Plan* plan_ = nullptr;         // now, the job's or its tail
  std::optional<Durations> takes_;     // of plan_
  double cut_ = no_failure;            // when the next failure is
  std::vector<std::int64_t> touched_;  // by rank: bytes that it has used since it was started
  std::vector<double> loading_;        // by rank: seconds
  std::vector<double> free_;           // by rank: until when it is busy
  std::vector<int> expert_;            // by rank: that in memory, of experts in turn; −1: none
  bool negative_ = false;              // whether the negative prompt has been encoded
  double busy_ = 0;                    // seconds of all replicas, weighted by their ranks
  // In split mode, by batch: when its embeddings are there, and when it was taken.
  std::vector<double> ready_, taken_;
  double inputs_ = 0;     // in split mode: when all inputs are encoded
  std::size_t room_ = 0;  // in split mode: batches whose embeddings may wait
  Simulation result_;
};

// How many there are if each step has its own.
double Simulator::step_spans() const {
  double steps = 0;
  for (const Batch& batch : batches_) {
    steps += static_cast<double>(computed_batch_steps(batch.clips, planned_.kinds)) /
             static_cast<double>(batch.clips.size());
  }
  const std::vector<RankRange>& replicas = layout_.plan.roles.denoise;
  return steps * replicas.front().count;
}

double Simulator::next_failure(double begin) {
  if (failures_.every <= 0) return no_failure;
  constexpr double below_one = 0x1p-53;
  const double u = static_cast<double>(random_() >> 11) * below_one;
  return begin - std::log(1 - u) * failures_.every / layout_.plan.ranks;
}

void Simulator::use(const Plan& plan) {
  plan_ = &plan;
  takes_.emplace(planned_, plan);
}

void Simulator::start(double begin) {
  const MachineTimes* machine = planned_.predicted_by.machine.get();
  const double ready = begin + (machine != nullptr ? machine->start : 0);
  for (int rank = 0; rank < layout_.plan.ranks; ++rank) {
    add(rank, trace::spans::prepare, begin, ready);
  }
  std::ranges::fill(free_, ready);
  std::ranges::fill(touched_, 0);
  std::ranges::fill(expert_, -1);
  negative_ = false;
  ready_.clear();
  taken_.assign(batches_.size(), 0);
  use(layout_.plan);
}

// A span, as far as it is before the failure.
void Simulator::add(int rank, const trace::SpanKind& kind, double start, double end, int clip,
                    int step, const StepCost& cost) {
  if (result_.spans.empty() || start >= cut_ || end <= start) return;
  trace::Span span;
  span.name = kind.name;
  span.lane = kind.lane;
  span.clip = clip;
  span.step = step;
  span.start_ns = nanoseconds(start);
  span.duration_ns = nanoseconds(std::min(end, cut_)) - span.start_ns;
  span.bytes = cost.sent_bytes;
  span.flops = to_integer(cost.flops);
  result_.spans[static_cast<std::size_t>(rank)].push_back(span);
}

// When all of them are free; none begins anything before.
double Simulator::wait_for(const RankRange& ranks) {
  const auto begin = free_.begin() + ranks.first;
  const double latest = *std::max_element(begin, begin + ranks.count);
  std::fill_n(begin, ranks.count, latest);
  return latest;
}

// What these ranks do together.
void Simulator::pass(const RankRange& ranks, const trace::SpanKind& kind, double seconds,
                     int clip) {
  const double begin = wait_for(ranks);
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    add(rank, kind, begin, begin + seconds, clip);
  }
  std::fill_n(free_.begin() + ranks.first, ranks.count, begin + seconds);
}

// Seconds of the first use of memory that a stage needs beyond what the rank has used before.
double Simulator::touching(int rank, const LoadedWeights& weights) {
  const MemoryPlan& memory = layout_.plan.memory;
  const std::int64_t needed = (memory.*weights.needed)(rank)-memory.program;
  std::int64_t& touched = touched_[static_cast<std::size_t>(rank)];
  const std::int64_t first = std::max<std::int64_t>(0, needed - touched);
  touched += first;
  return takes_->touch(first);
}

// The first load of a part waits for the disk, which gives one part after the other.
void Simulator::load(const LoadedWeights& weights, const RankRange& ranks) {
  double from_disk = 0;
  for (const std::optional<ModelPart> part : {std::optional(weights.part), weights.second}) {
    if (part) from_disk += disk_.try_emplace(*part, takes_->from_disk(*part)).first->second;
  }
  double read = disk_free_;
  bool loaded = false;
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    if ((layout_.plan.memory.ranks[i].*weights.stage).weights == 0) continue;
    const double waits = from_disk > 0 ? std::max(0.0, disk_free_ - free_[i]) + from_disk : 0;
    read = std::max(read, free_[i] + waits);
    const double seconds = waits + takes_->load(weights, rank) + touching(rank, weights);
    add(rank, trace::spans::load, free_[i], free_[i] + seconds);
    free_[i] += seconds;
    loading_[i] += seconds;
    loaded = true;
  }
  if (!loaded || from_disk == 0) return;
  disk_free_ = read;
  disk_[weights.part] = 0;
  if (weights.second) disk_[*weights.second] = 0;
}

// Both of two experts; of experts in turn none yet.
void Simulator::load_transformer(const RankRange& ranks) {
  if (layout_.plan.memory.experts_in_turn) {
    std::fill_n(expert_.begin() + ranks.first, ranks.count, -1);
    return;
  }
  load(loaded::denoise, ranks);
  if (planned_.family->experts() > 1) load(loaded::denoise_2, ranks);
}

// → when this expert is in memory on ranks that are free now.
double Simulator::enter_expert(int expert, const RankRange& ranks, double now) {
  if (expert_[static_cast<std::size_t>(ranks.first)] == expert) return now;
  std::fill_n(free_.begin() + ranks.first, ranks.count, now);
  load(expert == 0 ? loaded::denoise : loaded::denoise_2, ranks);
  std::fill_n(expert_.begin() + ranks.first, ranks.count, expert);
  return wait_for(ranks);
}

std::int64_t Simulator::embedding_bytes(std::size_t batch) const {
  std::int64_t bytes = 0;
  for (const ClipOutline& clip : batches_[batch].clips) {
    bytes += planned_.embedding_bytes(clip, planned_.predicted_by.dtype);
  }
  return bytes;
}

// The texts of a batch, each through all ranks that have layers. → when the last one is there.
double Simulator::encode(const Batch& batch) {
  const RankRange& ranks = layout_.plan.roles.text;
  double ready = free_[static_cast<std::size_t>(ranks.first)];
  for (const ClipOutline& clip : batch.clips) {
    const bool guided = planned_.kinds[clip.kind].texts.size() > 1;
    const int texts = guided && !negative_ ? 2 : 1;
    negative_ = negative_ || guided;
    for (int text = 0; text < texts; ++text) {
      ready = 0;
      for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        const double seconds = layout_.plan.text_time[i].total();
        if (seconds == 0) continue;
        const double begin = std::max(ready, free_[i]);
        add(rank, trace::spans::encode, begin, begin + seconds, clip.index);
        ready = free_[i] = begin + seconds;
      }
    }
  }
  return ready;
}

// The decoders take the clips in turn.
void Simulator::encode_inputs(std::size_t first, std::size_t end) {
  const std::vector<RankRange>& decoders = plan_->roles.decode;
  std::size_t next = 0;
  for (std::size_t b = first; b < end; ++b) {
    const Batch& batch = batches_[b];
    const std::optional<ClipInput>& input = kind_of(batch).input;
    if (!input || batch.begun()) continue;
    if (next == 0) {
      for (const RankRange& ranks : decoders) load(loaded::encode, ranks);
    }
    const double seconds = takes_->input(size_of(batch));
    for (const ClipOutline& clip : batch.clips) {
      pass(decoders[next++ % decoders.size()],
           input->file.kind == InputKind::image ? trace::spans::encode_image
                                                : trace::spans::encode_video,
           seconds, clip.index);
    }
  }
}

// Of all ranks of a replica.
void Simulator::add_step(const Batch& batch, std::size_t replica, const trace::SpanKind& kind,
                         double begin, double end, int step, bool costs) {
  if (result_.spans.empty()) return;
  const RankRange& ranks = plan_->roles.denoise[replica];
  const ClipPlan& size = plan_->sizes[size_of(batch)];
  const double share =
      static_cast<double>(batch.clips.size()) / static_cast<double>(size.workload.clips);
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    StepCost cost;
    if (costs) {
      cost = size.ranks[static_cast<std::size_t>(rank)].step;
      cost.flops *= share;
      cost.sent_bytes = to_integer(std::round(share * static_cast<double>(cost.sent_bytes)));
    }
    add(rank, kind, begin, end, batch.clips.front().index, step, cost);
  }
}

// The steps of a batch that are left, with saving. → when they are done.
double Simulator::denoise(Batch& batch, std::size_t replica) {
  const RankRange& ranks = plan_->roles.denoise[replica];
  const double step_seconds =
      static_cast<double>(batch.clips.size()) * takes_->step(size_of(batch), replica);
  const Clip& like = kind_of(batch);
  const SamplingRecipe& sampling = like.sampling;
  const std::int64_t saved_before = batch.clips.front().saved_step;
  const std::int64_t end = like.end_step(saved_before);
  double save_seconds = 0;
  for (const ClipOutline& one : batch.clips) save_seconds += takes_->save(one);
  const bool each = !result_.whole_batches;
  const double begin = wait_for(ranks);
  result_.begin = std::min(result_.begin, begin);
  double now = begin, saved_at = begin;
  for (int step = static_cast<int>(batch.saved); step < end && now < cut_; ++step) {
    if (layout_.plan.memory.experts_in_turn) {
      now = enter_expert(planned_.family->expert(sampling.sampler->timestep(step)), ranks, now);
    }
    if (sampling.computes(step)) {
      if (each) {
        add_step(batch, replica, trace::spans::denoise_step, now, now + step_seconds, step, true);
      }
      now += step_seconds;
    }
    const bool is_left = step + 1 == end && like.is_left(saved_before);
    if (!is_left && !planned_.predicted_by.saving.is_due(step + 1, now - saved_at)) continue;
    if (each) {
      add_step(batch, replica, trace::spans::save, now, now + save_seconds, step, false);
    }
    now += save_seconds;
    saved_at = now;
    if (now <= cut_) batch.saved = step + 1;
  }
  if (!each) add_step(batch, replica, trace::spans::denoise_steps, begin, now, -1, false);
  std::fill_n(free_.begin() + ranks.first, ranks.count, now);
  busy_ += (now - begin) * ranks.count;
  return now;
}

// Decodes and writes a batch. → when it is done.
double Simulator::decode(Batch& batch, std::size_t decoder) {
  const RankRange& ranks = plan_->roles.decode[decoder];
  const std::size_t size = size_of(batch);
  const double decoding = takes_->decode(size), writing = takes_->write(size);
  std::erase_if(batch.clips, [&](const ClipOutline& clip) {
    pass(ranks, trace::spans::decode, decoding, clip.index);
    pass(ranks, trace::spans::write, writing, clip.index);
    const double end = free_[static_cast<std::size_t>(ranks.first)];
    if (end > cut_) return false;
    result_.seconds = std::max(result_.seconds, end);
    return true;
  });
  return free_[static_cast<std::size_t>(ranks.first)];
}

// What precedes a round whose texts are not encoded.
void Simulator::encode_round(const Round& round) {
  const auto first = batches_.begin() + static_cast<std::ptrdiff_t>(round.first);
  const auto end = batches_.begin() + static_cast<std::ptrdiff_t>(round.encoded);
  if (std::any_of(first, end, [](const Batch& batch) { return !batch.begun(); })) {
    load(loaded::text, layout_.plan.roles.text);
    for (auto batch = first; batch != end; ++batch) {
      if (!batch->begun()) encode(*batch);
    }
  }
  wait_for(all());
  encode_inputs(round.first, round.encoded);
  wait_for(all());
  load_transformer(all());
  const MemoryPlan& memory = layout_.plan.memory;
  if (!memory.offloads && !memory.unloads_decoder) load(loaded::decode, all());
}

void Simulator::run_phased() {
  Rounds rounds(batches_.size(), layout_.tail_of(batches_.size()), layout_.plan.queue_bytes,
                [this](std::size_t batch) { return embedding_bytes(batch); });
  while (wait_for(all()) < cut_) {
    const std::optional<Round> round = rounds.next();
    if (!round) return;
    if (round->encoded > round->first) encode_round(*round);
    if (round->begins_tail) use(*layout_.tail);
    wait_for(all());
    make(round->first, round->end);
  }
}

// Each replica takes the next batch of its queue when it is free.
void Simulator::make(std::size_t first, std::size_t end) {
  const Roles& roles = plan_->roles;
  const MemoryPlan& memory = layout_.plan.memory;
  const Queues queues(roles.denoise.size());
  std::vector<std::size_t> taken(queues.count(), 0);
  using Free = std::pair<double, std::size_t>;  // when a replica is free, and which
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (std::size_t replica = 0; replica < roles.denoise.size(); ++replica) {
    free.emplace(wait_for(roles.denoise[replica]), replica);
  }
  std::vector<bool> has_transformer(roles.denoise.size(), true);
  for (; !free.empty() && free.top().first < cut_; free.pop()) {
    const std::size_t replica = free.top().second, queue = queues.of_group(replica);
    const std::size_t task = first + queues.task(queue, taken[queue]++);
    if (task >= end) continue;
    Batch& batch = batches_[task];
    if (memory.offloads && !has_transformer[replica]) load_transformer(roles.denoise[replica]);
    denoise(batch, replica);
    const std::size_t decoder = roles.decoder(replica);
    if (memory.offloads || memory.unloads_decoder) {
      load(loaded::decode, roles.decode[decoder]);
      has_transformer[replica] = false;
    }
    const double begin = wait_for(roles.decode[decoder]);
    const double done = decode(batch, decoder);
    busy_ += (done - begin) * roles.denoise[replica].count;
    const RankRange& ranks = roles.denoise[replica];
    std::fill_n(free_.begin() + ranks.first, ranks.count, done);
    free.emplace(done, replica);
  }
}

// In split mode: when the embeddings of a batch are there, which is asked for at this time. Text
// ranks go ahead as far as the queue has room.
double Simulator::embeddings_ready(std::size_t batch, double now) {
  while (ready_.size() <= batch) {
    const std::size_t next = ready_.size();
    if (next >= room_) {
      double& begin = free_[static_cast<std::size_t>(plan_->roles.text.first)];
      const double when = taken_[next - room_];
      begin = std::max(begin, when > 0 ? when : now);
    }
    const Batch& of = batches_[next];
    const double encoded = of.begun() ? 0 : encode(of);
    ready_.push_back(kind_of(of).input && !of.begun() ? std::max(encoded, inputs_) : encoded);
  }
  return ready_[batch];
}

// The decoding ranks take batches in the order in which they are denoised.
void Simulator::run_split() {
  const Roles& roles = plan_->roles;
  const RankRange& decoders = roles.decode.front();
  load(loaded::text, roles.text);
  encode_inputs(0, batches_.size());
  inputs_ = wait_for(decoders);
  load(loaded::decode, decoders);
  room_ = end_of_queue(0, batches_.size(), plan_->queue_bytes,
                       [this](std::size_t batch) { return embedding_bytes(batch); });
  const Queues queues(roles.denoise.size(), roles.denoise.size());
  std::vector<std::size_t> positions(queues.count(), 0);
  std::vector<std::deque<double>> pending(roles.denoise.size());
  struct Event {
    double time;
    std::size_t replica;
    std::optional<std::size_t> denoised;  // a batch; otherwise the replica is free
    bool operator>(const Event& other) const { return time > other.time; }
  };
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (std::size_t replica = 0; replica < roles.denoise.size(); ++replica) {
    load_transformer(roles.denoise[replica]);
    events.push({wait_for(roles.denoise[replica]), replica, {}});
  }
  while (!events.empty() && events.top().time < cut_) {
    const Event event = events.top();
    events.pop();
    const std::size_t replica = event.replica, queue = queues.of_group(replica);
    const RankRange& ranks = roles.denoise[replica];
    if (event.denoised) {
      const double begins = std::max(event.time, wait_for(decoders));
      std::fill_n(free_.begin() + decoders.first, decoders.count, begins);
      decode(batches_[*event.denoised], 0);
      std::deque<double>& waiting = pending[replica];
      waiting.push_back(begins);
      double free = event.time;
      if (waiting.size() > max_pending_batches) {
        free = std::max(free, waiting.front());
        waiting.pop_front();
      }
      events.push({free, replica, {}});
      continue;
    }
    const std::size_t batch = queues.task(queue, positions[queue]++);
    if (batch >= batches_.size()) continue;
    taken_[batch] = std::max(event.time, embeddings_ready(batch, event.time));
    std::fill_n(free_.begin() + ranks.first, ranks.count, taken_[batch]);
    const double end = denoise(batches_[batch], replica);
    events.push({end, replica, batch});
  }
}

Simulation Simulator::run() {
  if (batches_.empty()) result_.begin = 0;
  for (double begin = 0; !batches_.empty();) {
    cut_ = next_failure(begin);
    start(begin);
    layout_.plan.roles.mode == Mode::split ? run_split() : run_phased();
    std::erase_if(batches_, [](const Batch& batch) { return batch.clips.empty(); });
    if (batches_.empty()) break;
    std::int64_t left = 0;
    for (const Batch& batch : batches_) left += std::ssize(batch.clips);
    require(result_.failures.size() < max_failures, Status::unavailable,
            "--mtbf: after {} failures in {} there are still {} of {} clips to make, expected "
            "fewer failures or a shorter restart.every",
            max_failures, format_seconds(cut_), left, planned_.clips.size());
    const auto rank = static_cast<int>(random_() % static_cast<std::uint64_t>(layout_.plan.ranks));
    result_.failures.push_back({cut_, rank});
    begin = cut_ + failures_.pause;
  }
  result_.load = std::ranges::max(loading_);
  int ranks = 0;
  for (const RankRange& replica : layout_.plan.roles.denoise) ranks += replica.count;
  const double making = (result_.seconds - result_.begin) * ranks;
  if (making > 0) result_.idle = std::max(0.0, 1 - busy_ / making);
  return std::move(result_);
}

}  // namespace

Simulation simulate(const JobPlan& planned, const JobLayout& layout,
                    const std::vector<BatchOutline>& batches, const SimulatedFailures& failures,
                    std::int64_t max_spans) {
  stop::leave_if_requested("the job is planned");
  return Simulator(planned, layout, batches, failures, max_spans).run();
}

std::vector<BatchOutline> in_order(const JobPlan& planned, const JobLayout& layout,
                                   std::vector<BatchOutline> batches) {
  if (layout.plan.roles.denoise.size() == 1) return batches;
  const Durations takes(planned, layout.plan);
  const bool decodes = layout.plan.roles.mode == Mode::phased;
  std::vector<double> of_step, after;  // by size
  for (std::size_t size = 0; size < layout.plan.sizes.size(); ++size) {
    of_step.push_back(takes.step(size, 0));
    after.push_back(decodes ? takes.decode(size) + takes.write(size) : 0);
  }
  std::vector<std::pair<double, std::size_t>> order;
  for (const BatchOutline& batch : batches) {
    const std::size_t size = planned.size_index(batch.front());
    const auto steps = static_cast<double>(computed_batch_steps(batch, planned.kinds));
    order.emplace_back(of_step[size] * steps + after[size] * static_cast<double>(batch.size()),
                       order.size());
  }
  std::ranges::stable_sort(order, std::ranges::greater(), &std::pair<double, std::size_t>::first);
  std::vector<BatchOutline> ordered;
  ordered.reserve(batches.size());
  for (const auto& [seconds, batch] : order) ordered.push_back(std::move(batches[batch]));
  return ordered;
}

nlohmann::json describe(const Simulation& simulation, double undisturbed) {
  nlohmann::json failures = nlohmann::json::array();
  for (const SimulatedFailure& failure : simulation.failures) {
    failures.push_back({{"seconds", failure.time}, {"rank", failure.rank}});
  }
  return {{"job_seconds", simulation.seconds},
          {"job_seconds_without_failures", undisturbed},
          {"failures", failures}};
}

}  // namespace reelmesh
