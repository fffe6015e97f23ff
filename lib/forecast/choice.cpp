#include "forecast/choice.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

// Of so many ranks all sizes of groups are tried.
constexpr int few_ranks = 16, many_ranks = 64;

bool mesh_is_open(const ParallelRequest& request) {
  return !request.cfg && !request.ulysses && !request.ring;
}

bool is_power_of_2(int n) { return (n & (n - 1)) == 0; }

// Whether groups of so many of `ranks` ranks are tried although more would fit as often.
bool is_tried(int size, int ranks) {
  if (ranks <= few_ranks || is_power_of_2(size)) return true;
  return ranks <= many_ranks &&
         (size <= few_ranks || (size <= 32 && size % 4 == 0) || size % 8 == 0);
}

// Sizes of groups, the largest first: those that use as many ranks as others, and those that leave
// some without work; or divisors only.
std::vector<int> group_sizes(int ranks, bool divisors) {
  std::vector<int> sizes;
  for (int size = ranks; size >= 1; --size) {
    const bool divides = ranks % size == 0;
    const bool is_largest = ranks <= many_ranks && ranks / size != ranks / (size + 1);
    const bool other = !divisors && (is_largest || is_tried(size, ranks));
    if (divides || other) sizes.push_back(size);
  }
  return sizes;
}

int ranks_used(const Plan& plan) {
  const RankRange& last = plan.roles.denoise.back();
  return last.first + last.count;
}

// Whether the groups that share weights stay together.
bool keeps_shares(const Plan& then, const Plan& first) {
  return first.weights.residence != Residence::sharded ||
         then.roles.denoise.front().count % first.roles.denoise.front().count == 0;
}

}  // namespace

bool fits(const Plan& plan, const Conditions& conditions) {
  if (!plan.memory.fits()) return false;
  if (conditions.node_bytes <= 0) return true;
  std::map<int, std::int64_t> needed;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    needed[plan.node[static_cast<std::size_t>(rank)]] += plan.memory.peak(rank);
  }
  return std::ranges::all_of(
      needed, [&](const auto& node) { return node.second <= conditions.node_bytes; });
}

Plan plan_clips(const ParallelRequest& request, const Workload& workload,
                const Conditions& conditions) {
  const std::string& map = request.device_map;
  const std::string file = map.ends_with(".json") ? read_text(map, 1 << 24) : std::string();
  PlanMachine machine = conditions.machine;
  // Which are there before anything is loaded, too.
  (conditions.on_gpu ? machine.host_program : machine.program) += workload.clip_bytes;
  return make_plan(workload, machine, request, file);
}

std::optional<Plan> fitting_plan(const ParallelRequest& request, const Workload& workload,
                                 const Conditions& conditions) {
  try {
    Plan plan = plan_clips(request, workload, conditions);
    if (fits(plan, conditions)) return plan;
  } catch (const Error& error) {
    if (error.status() != Status::unavailable) throw;
  }
  return std::nullopt;
}

Choice::Choice(const Job& job, const JobPlan& planned, const Workload& workload,
               Conditions conditions, const std::vector<BatchOutline>& batches)
    : job_(job),
      planned_(planned),
      workload_(workload),
      conditions_(std::move(conditions)),
      batches_(batches) {}

// The layout of a request, if it is possible and fits.
void Choice::add(const ParallelRequest& request) {
  std::optional<Plan> plan = fitting_plan(request, workload_, conditions_);
  if (!plan) return;
  Candidate made{.request = request, .layout = {.plan = std::move(*plan)}};
  const Simulation played = simulate(planned_, made.layout, batches_);
  made.seconds = played.seconds;
  made.load = played.load;
  found_.push_back(std::move(made));
}

// The same with the weights of the transformer elsewhere.
void Choice::add_with_weights_elsewhere(ParallelRequest request) {
  for (const WeightsChoice choice : {WeightsChoice::sharded, WeightsChoice::host}) {
    request.weights = choice;
    add(request);
  }
}

void Choice::add_phased() {
  ParallelRequest request = job_.parallel;
  request.mode = Mode::phased;
  const int ranks = conditions_.machine.ranks;
  if (request.replicas || !mesh_is_open(request)) {
    add(request);
    return;
  }
  std::vector<int> sizes = group_sizes(ranks, has_many_sizes());
  if (timed()) std::ranges::reverse(sizes);
  int slower = 0;  // of the last groups
  for (const int size : sizes) {
    const int replicas = ranks / size;
    const bool too_many = static_cast<std::size_t>(replicas) > batches_.size() && replicas > 1;
    if (!timed() && (ranks % size != 0 || too_many)) continue;
    request.replicas = replicas;
    request.group = size;
    if (ranks % size == 0) request.group.reset();
    add(request);
    slower = !found_.empty() && fastest() + 1 < found_.size() ? slower + 1 : 0;
    if (timed() && ranks > many_ranks && slower == 2) break;
  }
}

// Groups of all ranks that are left beside text and decoding.
void Choice::add_split(int text, int decode) {
  ParallelRequest request = job_.parallel;
  request.mode = Mode::split;
  request.text = text;
  request.decode = decode;
  const int left = conditions_.machine.ranks - text - decode;
  if (left < 1 ||
      (timed() && !found_.empty() && min_seconds_of_steps(left) >= found_[fastest()].seconds)) {
    return;
  }
  if (request.replicas || !mesh_is_open(request)) {
    add(request);
    return;
  }
  const int max = static_cast<int>(std::min<std::size_t>(batches_.size(), many_ranks));
  for (int replicas = 1; replicas <= std::min(max, left); ++replicas) {
    if (left % replicas != 0) continue;
    request.replicas = replicas;
    add(request);
  }
}

void Choice::add_split() {
  const int ranks = conditions_.machine.ranks;
  const auto counts = [&](const std::optional<int>& asked, int max) {
    std::vector<int> all;
    for (int count = 1; count <= max; ++count) {
      const bool is_tried = ranks <= few_ranks ? count <= 6 || is_power_of_2(count)
                                               : count == 1 || count == ranks / 8;
      if (is_tried) all.push_back(count);
    }
    return asked ? std::vector<int>{*asked} : all;
  };
  for (const int text : counts(job_.parallel.text, std::max(1, ranks / 4))) {
    for (const int decode : counts(job_.parallel.decode, std::max(1, ranks / 2))) {
      add_split(text, decode);
    }
  }
}

// The layouts with the weights of the transformer elsewhere, if less loading could make them the
// fastest.
void Choice::add_weights() {
  if (job_.parallel.weights != WeightsChoice::automatic || found_.empty()) return;
  const std::size_t count = found_.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (found_[i].seconds - found_[i].load >= found_[fastest()].seconds) continue;
    add_with_weights_elsewhere(found_[i].request);
  }
}

// Fewer batches may be left for the last round than there are replicas: larger groups make them
// sooner. That saves less than the time of one batch, which is little in a job of many rounds.
void Choice::add_tails() {
  constexpr std::size_t max_rounds = 20;
  constexpr double min_saving = 0.01;
  const std::size_t count = found_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Plan& first = found_[i].layout.plan;
    const std::size_t replicas = first.roles.denoise.size(), rest = batches_.size() % replicas;
    if (first.roles.mode == Mode::split || rest == 0 || batches_.size() > max_rounds * replicas) {
      continue;
    }
    for (std::size_t j = 0; j < count; ++j) {
      const Plan& then = found_[j].layout.plan;
      if (then.roles.mode == Mode::split || then.roles.denoise.size() > rest ||
          then.launched != first.launched || ranks_used(then) > ranks_used(first) ||
          then.weights.residence != first.weights.residence || !keeps_shares(then, first)) {
        continue;
      }
      Candidate both{.request = found_[i].request, .layout = {first, then, rest}};
      both.seconds = simulate(planned_, both.layout, batches_).seconds;
      if (both.seconds < (1 - min_saving) * found_[fastest()].seconds) {
        found_.push_back(std::move(both));
      }
    }
  }
}

// A lower bound: all steps, divided without loss.
double Choice::min_seconds_of_steps(int ranks) const {
  double seconds = 0;
  for (const BatchOutline& batch : batches_) {
    const std::size_t size = planned_.size_index(batch.front());
    const WholeStep whole = workload_.costs->whole_step(size);
    const double clips = static_cast<double>(workload_.sizes[size].denoise.clips);
    seconds += static_cast<double>(computed_batch_steps(batch, planned_.kinds)) / clips *
               (whole.attention_seconds + whole.other_seconds);
  }
  return seconds / ranks;
}

// Of layouts that take as long the one with more replicas, which exchange less; weights leave the
// ranks for a gain only.
bool Choice::is_faster(const Candidate& one, const Candidate& other) const {
  const auto cost = [](const Candidate& candidate) {
    constexpr double min_gain = 1.005;
    const bool resident = candidate.layout.plan.weights.residence == Residence::replicated;
    return (resident ? 1 : min_gain) * candidate.seconds;
  };
  // In FLOPs, costs leave out decoding, which is cheaper on smaller groups: they exchange fewer
  // halos.
  const double tolerance = timed() ? 1e-9 : 0.02;
  const auto replicas = [](const Candidate& candidate) {
    return candidate.layout.plan.roles.denoise.size();
  };
  const double ratio = cost(one) / std::max(cost(other), 1e-300);
  if (std::abs(ratio - 1) > tolerance) return ratio < 1;
  return replicas(one) > replicas(other);
}

std::size_t Choice::fastest() const {
  std::size_t best = 0;
  for (std::size_t i = 1; i < found_.size(); ++i) {
    if (is_faster(found_[i], found_[best])) best = i;
  }
  return best;
}

void Choice::search() {
  if (!found_.empty()) return;
  const int ranks = conditions_.machine.ranks;
  // Whether text and decoding are asked to have ranks of their own, and whether they may.
  const bool split = assign_roles(job_.parallel, ranks).mode == Mode::split;
  const bool open = job_.parallel.mode == Mode::automatic && timed() && !split && ranks >= 3 &&
                    ranks <= many_ranks && !has_many_sizes();
  if (split) {
    add(job_.parallel);  // with as many text and decoding ranks as fit
  } else {
    add_phased();
  }
  if (split && !timed() && !found_.empty()) {
    const Roles roles = found_.front().layout.plan.roles;
    add_split(roles.text.count, roles.decode.front().count);
  } else if (split || open) {
    add_split();
  }
  if (timed()) add_weights();
  add_tails();
}

// The cuts and meshes that the request of a candidate leaves open.
std::vector<ParallelRequest> Choice::other_meshes(const Candidate& of) const {
  std::vector<ParallelRequest> requests;
  const ParallelRequest& asked = job_.parallel;
  for (const Shard shard : {Shard::height, Shard::frames, Shard::grid}) {
    if (asked.shard != Shard::automatic) break;
    requests.push_back(of.request);
    requests.back().shard = shard;
  }
  const int ranks = of.layout.plan.roles.denoise.front().count;
  const auto permits = [](const std::optional<int>& given, int value) {
    return !given || *given == value;
  };
  for (const int cfg : {1, 2}) {
    for (int ring = 1; ring <= ranks / cfg; ++ring) {
      const int ulysses = ranks / cfg / ring;
      if (cfg * ring * ulysses != ranks || !permits(asked.cfg, cfg) || !permits(asked.ring, ring) ||
          !permits(asked.ulysses, ulysses)) {
        continue;
      }
      ParallelRequest request = of.request;
      request.cfg = cfg;
      request.ring = ring;
      request.ulysses = ulysses;
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

std::vector<Candidate> Choice::all() {
  constexpr std::size_t few = 3;
  search();
  if (found_.empty()) return {};
  std::vector<Candidate> some{best()};
  std::vector<std::size_t> order(found_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return found_[i].seconds; });
  order.resize(std::min(few, order.size()));
  for (const std::size_t i : order) {
    const Candidate of = found_[i];
    for (const ParallelRequest& request : other_meshes(of)) add(request);
    if (job_.parallel.weights != WeightsChoice::automatic || of.layout.tail) continue;
    add_with_weights_elsewhere(of.request);
  }
  std::ranges::stable_sort(found_, {}, &Candidate::seconds);
  some.insert(some.end(), std::make_move_iterator(found_.begin()),
              std::make_move_iterator(found_.end()));
  found_.clear();
  return some;
}

Candidate Choice::best() {
  search();
  if (!found_.empty()) return found_[fastest()];
  return {.request = job_.parallel,
          .layout = {.plan = plan_clips(job_.parallel, workload_, conditions_)}};
}

}  // namespace reelmesh
