#include "plan/fit.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/number.hpp"
#include "plan/queues.hpp"
#include "plan/step_time.hpp"
#include "tensor/connection_memory.hpp"

namespace reelmesh {
namespace {

void keep_larger(StageMemory& mine, const StageMemory& other) {
  mine.weights = std::max(mine.weights, other.weights);
  mine.working = std::max(mine.working, other.working);
  mine.per_thread = std::max(mine.per_thread, other.per_thread);
  mine.peers = std::max(mine.peers, other.peers);
  mine.host = std::max(mine.host, other.host);
}

// The part of the streamed weights that each rank keeps.
std::vector<double> kept_parts(const Plan& plan) {
  std::vector<double> kept(index(plan.ranks), 1);
  for (std::size_t replica = 0; replica < plan.roles.denoise.size(); ++replica) {
    const RankRange& range = plan.roles.denoise[replica];
    std::ranges::copy(plan.weights.kept_parts(replica, range.count), kept.begin() + range.first);
  }
  return kept;
}

// How many ranks of a range are on each node.
std::map<int, std::int64_t> ranks_of_nodes(const Plan& plan, const RankRange& range) {
  std::map<int, std::int64_t> counts;
  for (const int node : of_range(plan.node, range)) ++counts[node];
  return counts;
}

// What the messages of each stage take, as its ranks are connected in the pipeline: those of a
// stage have one communicator, and another for sharded weights.
void add_connections(MemoryPlan& memory, const Plan& plan) {
  std::set<std::pair<int, int>> text;  // ranks with layers that follow one another
  const std::vector<DeviceMap::Stage> parts = plan.device_map.stages();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [a, b] = std::minmax(parts[i - 1].rank, parts[i].rank);
    if (a != b) text.emplace(a, b);
  }
  for (const auto& [a, b] : text) {
    for (const int rank : {a, b}) ++memory.ranks.at(index(plan.roles.text.first + rank)).text.peers;
  }
  // on_node, all: ranks of a range, on the rank's node and on all.
  const auto bytes = [](std::int64_t on_node, std::int64_t all, std::int64_t peers,
                        bool background) {
    const std::int64_t others = all - 1;
    if (others == 0) return std::int64_t{0};
    // A ring of all is connected first.
    peers = std::clamp<std::int64_t>(peers, std::min<std::int64_t>(2, others), others);
    const std::int64_t near = std::min<std::int64_t>(peers, on_node - 1);
    return connection_bytes(near, peers - near, background);
  };
  // Stages on the same ranks share a communicator.
  struct Stages {
    bool text = false, denoise = false, decode = false;
  };
  std::map<std::pair<int, int>, Stages> ranges;  // by first rank and how many
  const auto on = [&](const RankRange& range) -> Stages& {
    return ranges[{range.first, range.count}];
  };
  on(plan.roles.text).text = true;
  for (const RankRange& range : plan.roles.denoise) on(range).denoise = true;
  for (const RankRange& range : plan.roles.decode) on(range).decode = true;
  for (const auto& [range, stages] : ranges) {
    const auto [first, count] = range;
    const std::map<int, std::int64_t> of_node = ranks_of_nodes(plan, {first, count});
    for (int rank = first; rank < first + count; ++rank) {
      RankMemory& mine = memory.ranks[index(rank)];
      const std::int64_t near = of_node.at(plan.node[index(rank)]);
      std::int64_t peers = 0;
      if (stages.text) {
        peers = mine.text.peers;
        mine.text_connections = bytes(near, count, peers, false);
      }
      if (stages.denoise) {
        peers += mine.denoise.peers;
        if (plan.weights.residence == Residence::sharded) {
          mine.connections += bytes(near, count, count - 1, true);
        }
      }
      if (stages.decode) peers += std::max(mine.decode.peers, mine.encode.peers);
      mine.connections += bytes(near, count, peers, false);
    }
  }
}

// What ranks with GPUs have on their hosts beside what a stage takes there: the embeddings that
// wait, and those weights of the transformer that the ranks of a replica on one host share.
void add_host_memory(const Plan& plan, const Workload& workload, MemoryPlan& memory) {
  const Roles& roles = plan.roles;
  const auto queues = static_cast<std::int64_t>(Queues(roles.denoise.size()).count());
  const std::int64_t queued = roles.mode == Mode::split
                                  ? std::min(plan.queue_bytes, workload.largest_embedding_bytes)
                                  : plan.queue_bytes / queues;
  for (RankMemory& rank : memory.ranks) rank.embeddings_on_host = queued;
  memory.ranks.at(index(plan.embeddings_rank())).text.host += plan.queue_bytes;
  if (plan.weights.residence != Residence::host) return;
  const auto shared = (1 - plan.weights.resident) * static_cast<double>(plan.weights.all);
  for (const RankRange& range : roles.denoise) {
    const std::map<int, std::int64_t> of_node = ranks_of_nodes(plan, range);
    for (int i = 0; i < range.count; ++i) {
      const std::size_t rank = index(range.first + i);
      memory.ranks[rank].weights_on_host = to_integer(shared / double(of_node.at(plan.node[rank])));
    }
  }
}

// Of the plan with its queue_bytes, without offloading.
MemoryPlan plan_memory(const Plan& plan, const Workload& workload, const PlanMachine& machine) {
  const std::int64_t waiting = machine.count_waiting_embeddings ? plan.queue_bytes : 0;
  MemoryPlan memory;
  memory.limits = plan.memory.limits;
  memory.program = machine.program;
  memory.host_program = machine.host_program;
  memory.threads = machine.threads;
  memory.decoder = plan.memory.decoder;
  memory.unloads_decoder = memory.decoder == WeightsChoice::host;
  memory.ranks.resize(index(plan.ranks));
  for (const DeviceMap::Stage& stage : plan.device_map.stages()) {
    StageMemory& mine = memory.ranks.at(index(plan.roles.text.first + stage.rank)).text;
    StageMemory more = workload.costs->text(stage).memory;
    if (stage.on_host) {
      StreamedWeights streamed = workload.text.streamed_layer;
      streamed.bytes *= stage.last - stage.first;
      streamed.host_bytes *= stage.last - stage.first;
      more = without_streamed(more, streamed, Residence::host, 0, streamed.host_window);
      memory.ranks.at(index(plan.roles.text.first + stage.rank)).text_on_host +=
          streamed.host_bytes;
    }
    more.weights += mine.weights;
    keep_larger(mine, more);
  }
  memory.ranks.at(index(plan.embeddings_rank())).text.working += waiting;
  const Roles& roles = plan.roles;
  const bool by_batch = roles.mode == Mode::split;  // replicas ask for one after the other
  const std::vector<double> kept = kept_parts(plan);
  for (std::size_t r = 0; r < memory.ranks.size(); ++r) {
    RankMemory& mine = memory.ranks[r];
    mine.embeddings = by_batch && !roles.text.contains(static_cast<int>(r))
                          ? std::min(waiting, workload.largest_embedding_bytes)
                          : waiting;
    for (const ClipPlan& size : plan.sizes) {
      const StageMemory denoise =
          without_streamed(size.ranks[r].denoise, size.workload.streamed, plan.weights.residence,
                           kept[r], plan.weights.window);
      keep_larger(mine.encode, size.ranks[r].encode);
      keep_larger(mine.denoise, denoise);
      if (plan.weights.residence == Residence::replicated) {
        keep_larger(mine.denoise_in_turn, size.ranks[r].denoise_in_turn);
      }
      keep_larger(mine.decode, size.ranks[r].decode);
    }
    mine.keeps_encoder = roles.mode == Mode::split && mine.encode.used();
  }
  if (machine.connects_devices) add_connections(memory, plan);
  if (memory.on_gpu()) add_host_memory(plan, workload, memory);
  return memory;
}

// With the longest queue of embeddings that fits; of all clips if there are no limits.
void predict_memory(Plan& plan, const Workload& workload, const PlanMachine& machine) {
  // The first clip of a long job is not to wait for all its prompts. The text encoder may be loaded
  // again for each so many batches, which then take little of the time.
  constexpr std::int64_t max_batches = 1024;  // per replica
  plan.embedding_bytes = plan.queue_bytes =
      std::min(workload.embedding_bytes,
               max_batches * std::ssize(plan.roles.denoise) * workload.largest_embedding_bytes);
  plan.memory = plan_memory(plan, workload, machine);
  if (plan.memory.fits()) return;
  if (machine.count_waiting_embeddings) {
    const std::size_t batches = plan.roles.mode == Mode::split ? 1 : plan.roles.denoise.size();
    plan.queue_bytes = std::min(plan.embedding_bytes, static_cast<std::int64_t>(batches) *
                                                          workload.largest_embedding_bytes);
  }
  plan.memory = with_offloading(plan_memory(plan, workload, machine));
  const std::int64_t more = plan.memory.room();
  if (!machine.count_waiting_embeddings || more <= 0) return;
  const Offloading chosen = plan.memory;
  plan.queue_bytes = std::min(plan.embedding_bytes, plan.queue_bytes + more);
  plan.memory = with(chosen, plan_memory(plan, workload, machine));
}

// What each rank has left for the streamed weights of the transformer beside everything else. A
// part of the limit stays free, since a prediction is not exact and all that is left is used.
std::vector<double> rooms_for_weights(Plan plan, const Workload& workload,
                                      const PlanMachine& machine) {
  plan.weights.residence = Residence::host;  // nothing stays
  plan.weights.resident = 0;
  predict_memory(plan, workload, machine);
  std::vector<double> rooms;
  for (int r = 0; r < plan.ranks; ++r) {
    const std::int64_t used = std::max(plan.memory.denoise(r), plan.memory.decode(r));
    const std::int64_t limit = plan.memory.limits[index(r)];
    rooms.push_back(std::max(0.0, static_cast<double>(limit - limit / 40 - used)));
  }
  return rooms;
}

// The plan with the weights of the transformer placed like this; with limits, in proportion to the
// room that ranks have. moves_all: what is on the host is not kept even where there is room.
Plan with_weights(Plan plan, Residence residence, const Workload& workload,
                  const PlanMachine& machine, bool moves_all = false) {
  const StreamedWeights& streamed = workload.sizes.front().denoise.streamed;
  WeightPlan& weights = plan.weights;
  weights = {.residence = residence, .all = streamed.kept_bytes(residence)};
  if (residence == Residence::sharded) weights.window = streamed.gather_window;
  if (residence == Residence::host) weights.window = streamed.host_window;
  if (residence != Residence::replicated && !plan.memory.limits.empty()) {
    const std::vector<double> rooms = rooms_for_weights(plan, workload, machine);
    weights.resident = residence == Residence::host ? 1 : 0;
    bool equal = true;
    for (const RankRange& range : plan.roles.denoise) {
      RankWeights shares = of_range(rooms, range);
      const auto [smallest, largest] = std::ranges::minmax(shares);
      if (residence == Residence::host) {
        weights.resident =
            std::min(weights.resident,
                     smallest / static_cast<double>(std::max<std::int64_t>(1, weights.all)));
      }
      equal = equal && smallest > 0.99 * largest;
      if (largest <= 0) shares.assign(shares.size(), 1);
      weights.shares.push_back(std::move(shares));
    }
    if (equal || residence == Residence::host) weights.shares.clear();
    if (moves_all) weights.resident = 0;
  }
  double min = 1, max = 0;  // of the ranks that denoise
  const std::vector<double> kept = kept_parts(plan);
  for (const RankRange& range : plan.roles.denoise) {
    for (const double part : of_range(kept, range)) {
      min = std::min(min, part);
      max = std::max(max, part);
    }
  }
  weights.kept = to_integer(max * static_cast<double>(weights.all));
  weights.fetched =
      to_integer((1 - min) * static_cast<double>(streamed.step) * static_cast<double>(weights.all) /
                 static_cast<double>(std::max<std::int64_t>(1, streamed.host_bytes)));
  predict_memory(plan, workload, machine);
  return plan;
}

// Predicted cost of a step on the busiest rank.
double cost_of_step(const Plan& plan, const PlanMachine& machine) {
  double busiest = 0;
  const ClipPlan& size = plan.sizes.front();
  for (int rank = 0; rank < std::ssize(size.ranks); ++rank) {
    busiest = std::max(busiest, step_cost(plan, size, rank, 1, machine.times.get()));
  }
  return busiest;
}

}  // namespace

Plan with_chosen_weights(const Plan& plan, const Workload& workload, const PlanMachine& machine,
                         WeightsChoice asked) {
  const auto with = [&](Residence residence) {
    return with_weights(plan, residence, workload, machine);
  };
  if (asked == WeightsChoice::sharded) return with(Residence::sharded);
  if (asked == WeightsChoice::host) {
    return with_weights(plan, Residence::host, workload, machine, machine.limits_are_free_memory);
  }
  Plan best = with(Residence::replicated);
  if (asked == WeightsChoice::replicated || best.memory.fits()) return best;
  for (const Residence residence : {Residence::sharded, Residence::host}) {
    Plan other = with(residence);
    const bool fits = other.memory.fits();
    const bool better = !best.memory.fits()
                            ? other.memory.room() > best.memory.room()
                            : fits && cost_of_step(other, machine) < cost_of_step(best, machine);
    if (better) best = std::move(other);
  }
  return best;
}

}  // namespace reelmesh
