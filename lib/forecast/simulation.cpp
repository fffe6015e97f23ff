#include "forecast/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <random>

#include "base/error.hpp"
#include "base/number.hpp"
#include "base/units.hpp"
#include "forecast/loading.hpp"

namespace reelmesh {
namespace {

constexpr std::size_t most_failures = 1000;

std::int64_t nanoseconds(double seconds) { return to_integer(std::round(1e9 * seconds)); }

// What of a batch is still to be made.
struct Batch {
  BatchOutline clips;
  std::int64_t saved = 0;  // completed steps
  bool begun() const { return saved > 0; }
};

class Simulator {
 public:
  Simulator(const Job& job, const JobPlan& planned, const SimulatedFailures& failures,
            std::int64_t most_spans)
      : job_(job),
        planned_(planned),
        by_(*planned.predicted_by.machine),
        failures_(failures),
        touched_(static_cast<std::size_t>(planned.plan.ranks)),
        free_(touched_.size()) {
    for (BatchOutline& clips : ordered_batches(planned, planned.clips, job.batch)) {
      const std::int64_t saved = clips.front().saved_step;
      batches_.push_back({std::move(clips), saved});
    }
    for (const LoadedWeights& weights : loaded::all) {
      if (!disk_.contains(weights.part)) {
        disk_[weights.part] = seconds_from_disk(planned, weights.part);
      }
    }
    result_.spans.resize(free_.size());
    result_.whole_batches = step_spans() > static_cast<double>(most_spans);
  }

  Simulation run();

 private:
  double step_spans() const;
  double next_failure(double begin);
  void start(double begin);
  void add(int rank, const trace::SpanKind& kind, double start, double end, int clip = -1,
           int step = -1, const StepCost& cost = {});
  double wait_for(const RankRange& ranks);
  void pass(const RankRange& ranks, const trace::SpanKind& kind, double seconds, int clip);
  void load(const LoadedWeights& weights, const RankRange& ranks);
  double touching(int rank, const LoadedWeights& weights);
  std::size_t end_of_queue(std::size_t first) const;
  double encode(const Batch& batch);
  void encode_inputs(std::size_t first, std::size_t end);
  double denoise(Batch& batch, std::size_t replica);
  double decode(Batch& batch, std::size_t decoder);
  void run_phased();
  void make(std::size_t first, std::size_t end);
  void run_split();

  RankRange all() const { return {0, planned_.plan.ranks}; }
  std::size_t size_of(const Batch& batch) const { return planned_.size_index(batch.clips.front()); }
  const Clip& kind_of(const Batch& batch) const { return planned_.kinds[batch.clips.front().kind]; }

  const Job& job_;
  const JobPlan& planned_;
  const MachineTimes& by_;
  const SimulatedFailures failures_;
  std::mt19937_64 random_;
  std::vector<Batch> batches_;
  std::map<ModelPart, double> disk_;   // seconds of what the system does not have in memory yet
  const Plan* plan_ = nullptr;         // now, the job's or its tail
  double cut_ = never;                 // when the next failure is
  std::vector<std::int64_t> touched_;  // by rank: bytes that it has used since it was started
  std::vector<double> free_;           // by rank: until when it is busy
  bool negative_ = false;              // whether the negative prompt has been encoded
  Simulation result_;
};

// How many there are if each step has its own.
double Simulator::step_spans() const {
  double steps = 0;
  for (const Batch& batch : batches_) {
    steps += static_cast<double>(computed_batch_steps(batch.clips, planned_.kinds)) /
             static_cast<double>(batch.clips.size());
  }
  const std::vector<RankRange>& replicas = planned_.plan.roles.denoise;
  return steps * replicas.front().count;
}

double Simulator::next_failure(double begin) {
  if (failures_.every <= 0) return never;
  constexpr double below_one = 0x1p-53;
  const double u = static_cast<double>(random_() >> 11) * below_one;
  return begin - std::log(1 - u) * failures_.every / planned_.plan.ranks;
}

void Simulator::start(double begin) {
  std::ranges::fill(free_, begin + by_.start);
  std::ranges::fill(touched_, 0);
  negative_ = false;
  plan_ = &planned_.plan;
}

// A span, as far as it is before the failure.
void Simulator::add(int rank, const trace::SpanKind& kind, double start, double end, int clip,
                    int step, const StepCost& cost) {
  if (start >= cut_ || end <= start) return;
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
    free_[static_cast<std::size_t>(rank)] = begin + seconds;
  }
}

// Seconds of the first use of memory that a stage needs beyond what the rank has used before.
double Simulator::touching(int rank, const LoadedWeights& weights) {
  const MemoryPlan& memory = planned_.plan.memory;
  const std::int64_t needed = (memory.*weights.needed)(rank)-memory.program;
  std::int64_t& touched = touched_[static_cast<std::size_t>(rank)];
  const std::int64_t first = std::max<std::int64_t>(0, needed - touched);
  touched += first;
  return static_cast<double>(first) / by_.touch;
}

void Simulator::load(const LoadedWeights& weights, const RankRange& ranks) {
  double& from_disk = disk_[weights.part];
  bool loaded = false;
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const std::int64_t bytes = (planned_.plan.memory.ranks[i].*weights.stage).weights;
    if (bytes == 0) continue;
    const double seconds =
        seconds_to_load(planned_, weights, bytes) + from_disk + touching(rank, weights);
    add(rank, trace::spans::load, free_[i], free_[i] + seconds);
    free_[i] += seconds;
    loaded = true;
  }
  if (loaded) from_disk = 0;
}

// The end of the batches from `first` on that can wait to be denoised together.
std::size_t Simulator::end_of_queue(std::size_t first) const {
  return reelmesh::end_of_queue(first, batches_.size(), planned_.plan.queue_bytes,
                                [&](std::size_t batch) {
                                  std::int64_t bytes = 0;
                                  for (const ClipOutline& clip : batches_[batch].clips) {
                                    bytes += planned_.embedding_bytes(clip, job_.dtype);
                                  }
                                  return bytes;
                                });
}

// The texts of a batch, each through all ranks that have layers. → when the last one is there.
double Simulator::encode(const Batch& batch) {
  const RankRange& ranks = planned_.plan.roles.text;
  double ready = free_[static_cast<std::size_t>(ranks.first)];
  for (const ClipOutline& clip : batch.clips) {
    const bool guided = planned_.kinds[clip.kind].texts.size() > 1;
    const int texts = guided && !negative_ ? 2 : 1;
    negative_ = negative_ || guided;
    for (int text = 0; text < texts; ++text) {
      ready = 0;
      for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        const double seconds = planned_.plan.text_time[i].total();
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
    const double seconds = seconds_of_input(*plan_, size_of(batch));
    for (const ClipOutline& clip : batch.clips) {
      pass(decoders[next++ % decoders.size()],
           input->file.kind == InputKind::image ? trace::spans::encode_image
                                                : trace::spans::encode_video,
           seconds, clip.index);
    }
  }
}

// The steps of a batch that are left, with saving. → when they are done.
double Simulator::denoise(Batch& batch, std::size_t replica) {
  const RankRange& ranks = plan_->roles.denoise[replica];
  const std::size_t size = size_of(batch);
  const ClipPlan& clip = plan_->sizes[size];
  const auto clips = static_cast<double>(batch.clips.size());
  const double step_seconds = clips * seconds_of_step(planned_, *plan_, size, replica);
  const SamplingRecipe& sampling = kind_of(batch).sampling;
  std::int64_t state = 0;
  for (const ClipOutline& one : batch.clips) {
    state += numel(kind_of(batch).latent_shape()) * reelmesh::size_of(DType::float32) +
             planned_.embedding_bytes(one, DType::float32);
  }
  const double save_seconds = static_cast<double>(state) / by_.write;
  const int index = batch.clips.front().index;
  const auto add_to_all = [&](const trace::SpanKind& kind, double begin, double end, int step,
                              bool costs) {
    for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
      StepCost cost;
      if (costs && !clip.ranks.empty()) {
        cost = clip.ranks[static_cast<std::size_t>(rank)].step;
        const double share = clips / static_cast<double>(clip.workload.clips);
        cost.flops *= share;
        cost.sent_bytes = to_integer(std::round(share * static_cast<double>(cost.sent_bytes)));
      }
      add(rank, kind, begin, end, index, step, cost);
    }
  };
  const double begin = wait_for(ranks);
  double now = begin, saved_at = begin;
  for (int step = static_cast<int>(batch.saved); step < sampling.sampler->calls() && now < cut_;
       ++step) {
    if (sampling.computes(step)) {
      if (!result_.whole_batches) {
        add_to_all(trace::spans::denoise_step, now, now + step_seconds, step, true);
      }
      now += step_seconds;
    }
    if (!job_.restart.is_due(step + 1, now - saved_at)) continue;
    if (!result_.whole_batches) {
      add_to_all(trace::spans::save, now, now + save_seconds, step, false);
    }
    now += save_seconds;
    saved_at = now;
    if (now <= cut_) batch.saved = step + 1;
  }
  if (result_.whole_batches) add_to_all(trace::spans::denoise_steps, begin, now, -1, false);
  std::fill_n(free_.begin() + ranks.first, ranks.count, now);
  return now;
}

// Decodes and writes a batch. → when it is done.
double Simulator::decode(Batch& batch, std::size_t decoder) {
  const RankRange& ranks = plan_->roles.decode[decoder];
  const std::size_t size = size_of(batch);
  const double decoding = seconds_of_decode(planned_, *plan_, size);
  const double writing = seconds_after_steps(planned_, *plan_, size) - decoding;
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

// As pipeline/phased.cpp.
void Simulator::run_phased() {
  const std::size_t tail = batches_.size() - planned_.tail_of(batches_.size());
  std::size_t made = 0, encoded = 0;
  while (made < batches_.size() && wait_for(all()) < cut_) {
    if (made == encoded) {
      encoded = end_of_queue(made);
      const auto first = batches_.begin() + static_cast<std::ptrdiff_t>(made);
      const auto end = batches_.begin() + static_cast<std::ptrdiff_t>(encoded);
      if (std::any_of(first, end, [](const Batch& batch) { return !batch.begun(); })) {
        load(loaded::text, planned_.plan.roles.text);
        for (auto batch = first; batch != end; ++batch) {
          if (!batch->begun()) encode(*batch);
        }
      }
      wait_for(all());
      encode_inputs(made, encoded);
      wait_for(all());
      load(loaded::denoise, all());
      const MemoryPlan& memory = planned_.plan.memory;
      if (!memory.offloads && !memory.unloads_decoder) load(loaded::decode, all());
    }
    if (made == tail) plan_ = &*planned_.tail;
    wait_for(all());
    const std::size_t end = made < tail ? std::min(encoded, tail) : encoded;
    make(made, end);
    made = end;
  }
}

// Each replica takes the next batch of its queue when it is free.
void Simulator::make(std::size_t first, std::size_t end) {
  const Roles& roles = plan_->roles;
  const MemoryPlan& memory = planned_.plan.memory;
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
    if (memory.offloads && !has_transformer[replica]) load(loaded::denoise, roles.denoise[replica]);
    denoise(batch, replica);
    const std::size_t decoder = roles.decoder(replica);
    if (memory.offloads || memory.unloads_decoder) {
      load(loaded::decode, roles.decode[decoder]);
      has_transformer[replica] = false;
    }
    const double done = decode(batch, decoder);
    const RankRange& ranks = roles.denoise[replica];
    std::fill_n(free_.begin() + ranks.first, ranks.count, done);
    free.emplace(done, replica);
  }
}

// As pipeline/split.cpp: text ranks go ahead as far as the queue has room, the decoding ranks take
// batches in the order in which they are denoised.
void Simulator::run_split() {
  const Roles& roles = plan_->roles;
  load(loaded::text, roles.text);
  encode_inputs(0, batches_.size());
  const double inputs = wait_for(roles.decode.front());
  load(loaded::decode, roles.decode.front());
  const std::size_t room = end_of_queue(0);
  std::vector<double> ready, taken(batches_.size(), 0);
  // When the embeddings of a batch are there, which is asked for at this time.
  const auto embeddings = [&](std::size_t batch, double now) {
    while (ready.size() <= batch) {
      const std::size_t next = ready.size();
      if (next >= room) {
        double& begin = free_[static_cast<std::size_t>(roles.text.first)];
        const double when = taken[next - room];
        begin = std::max(begin, when > 0 ? when : now);
      }
      const Batch& of = batches_[next];
      const double encoded = of.begun() ? 0 : encode(of);
      ready.push_back(kind_of(of).input && !of.begun() ? std::max(encoded, inputs) : encoded);
    }
    return ready[batch];
  };
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
    load(loaded::denoise, roles.denoise[replica]);
    events.push({wait_for(roles.denoise[replica]), replica, {}});
  }
  while (!events.empty() && events.top().time < cut_) {
    const Event event = events.top();
    events.pop();
    const std::size_t replica = event.replica, queue = queues.of_group(replica);
    const RankRange& ranks = roles.denoise[replica];
    if (event.denoised) {
      const double begins = std::max(event.time, wait_for(roles.decode.front()));
      std::fill_n(free_.begin() + roles.decode.front().first, roles.decode.front().count, begins);
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
    taken[batch] = std::max(event.time, embeddings(batch, event.time));
    std::fill_n(free_.begin() + ranks.first, ranks.count, taken[batch]);
    const double end = denoise(batches_[batch], replica);
    events.push({end, replica, batch});
  }
}

Simulation Simulator::run() {
  for (double begin = 0;;) {
    cut_ = next_failure(begin);
    start(begin);
    planned_.plan.roles.mode == Mode::split ? run_split() : run_phased();
    std::erase_if(batches_, [](const Batch& batch) { return batch.clips.empty(); });
    if (batches_.empty()) return std::move(result_);
    std::int64_t left = 0;
    for (const Batch& batch : batches_) left += std::ssize(batch.clips);
    require(result_.failures.size() < most_failures, Status::unavailable,
            "--mtbf: after {} failures in {} there are still {} of {} clips to make, expected "
            "fewer failures or a shorter restart.every",
            most_failures, format_seconds(cut_), left, planned_.clips.size());
    const auto rank = static_cast<int>(random_() % static_cast<std::uint64_t>(planned_.plan.ranks));
    result_.failures.push_back({cut_, rank});
    begin = cut_ + failures_.pause;
  }
}

}  // namespace

Simulation simulate(const Job& job, const JobPlan& planned, const SimulatedFailures& failures,
                    std::int64_t most_spans) {
  expect(planned.predicted_by.machine != nullptr, "a simulation without times");
  return Simulator(job, planned, failures, most_spans).run();
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
