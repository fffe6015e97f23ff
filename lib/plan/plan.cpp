#include "plan/plan.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "plan/decode.hpp"
#include "plan/nodes.hpp"

namespace reelmesh {
namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

template <class T>
std::vector<T> of_range(const std::vector<T>& values, const RankRange& range) {
  if (values.empty()) return {};
  const auto first = values.begin() + range.first;
  return {first, first + range.count};
}

ClipPlan plan_clip(const ClipWorkload& workload, const Roles& roles, const MeshRequest& mesh,
                   Shard shard, int ranks, const RankWeights& weights) {
  ClipPlan clip;
  clip.workload = workload.denoise;
  clip.ranks.resize(index(ranks));
  // Of the last search: replicas of the same number of ranks with equal weights share its result.
  RankWeights searched;
  for (std::size_t replica = 0; replica < roles.denoise.size(); ++replica) {
    const RankRange& range = roles.denoise[replica];
    const RankWeights own = of_range(weights, range);
    if (replica == 0 || replica >= roles.first_helper() || own != searched) {
      const MeshRequest& asked = replica < roles.first_helper() ? mesh : MeshRequest{};
      ChosenLayout chosen = choose_layout(workload.denoise, asked, shard, range.count, own);
      if (clip.denoise.empty()) {
        clip.why = std::move(chosen.why);
        clip.exchanges = std::move(chosen.exchanges);
      }
      clip.denoise.push_back(std::move(chosen.layout));
      searched = own;
    } else {
      clip.denoise.push_back(clip.denoise.back());
    }
    for (int r = 0; r < range.count; ++r) {
      ClipPlan::OfRank& mine = clip.ranks[index(range.first + r)];
      mine.denoise = workload.denoise.memory(clip.denoise.back(), r);
      mine.step = step_cost(workload.denoise, clip.denoise.back(), r);
    }
  }
  int ranks_searched = 0;
  for (const RankRange& range : roles.decode) {
    const RankWeights own = of_range(weights, range);
    if (range.count != ranks_searched || own != searched) {
      ranks_searched = range.count;
      clip.decode.push_back(decode_layout(workload.decode, range.count, own));
      searched = own;
    } else {
      clip.decode.push_back(clip.decode.back());
    }
    for (int r = 0; r < range.count; ++r) {
      clip.ranks[index(range.first + r)].decode = workload.decode.memory(clip.decode.back(), r);
    }
  }
  return clip;
}

// The launched rank at each place, such that ranks that exchange most share a node.
std::vector<int> order_of(const Plan& plan, const PlanMachine& machine, Order order) {
  std::vector<int> launched(index(plan.ranks));
  std::iota(launched.begin(), launched.end(), 0);
  if (machine.node_of.empty() || order == Order::rank) return launched;
  const Mesh& mesh = plan.sizes.front().denoise.front().mesh;
  return order_by_node(
      machine.node_of,
      ranges_to_colocate(plan.roles.denoise, {mesh.branch_ranks(), mesh.ulysses}, machine.node_of));
}

// Layouts depend on the weights at each place, and the placement of ranks depends on the layouts.
// If weights were measured for launched ranks, both are computed in turn, for at most max_rounds.
// Layouts and weights of the plan always agree, but if the rounds do not converge, ranks that
// exchange most may be on different nodes.
void choose_layouts(Plan& plan, const Workload& workload, const PlanMachine& machine,
                    const ParallelRequest& request) {
  constexpr int max_rounds = 4;
  const MeshRequest mesh{request.cfg, request.ulysses, request.ring};
  plan.launched.resize(index(plan.ranks));
  std::iota(plan.launched.begin(), plan.launched.end(), 0);
  for (int round = 0; round < max_rounds; ++round) {
    plan.rank_weights = machine.rank_weights.in_plan_order(plan.launched);
    plan.sizes.clear();
    for (const ClipWorkload& size : workload.sizes) {
      plan.sizes.push_back(
          plan_clip(size, plan.roles, mesh, request.shard, plan.ranks, plan.rank_weights));
    }
    std::vector<int> launched = order_of(plan, machine, request.order);
    const bool converged = launched == plan.launched;
    const bool independent = machine.rank_weights.by_place || machine.rank_weights.values.empty();
    if (!converged && (independent || round + 1 < max_rounds)) plan.launched = std::move(launched);
    if (converged || independent) break;
  }
  for (const int rank : plan.launched) {
    plan.node.push_back(machine.node_of.empty() ? 0 : machine.node_of.at(index(rank)));
  }
}

// What each text rank has left for the weights of the text encoder; empty without limits.
std::vector<std::int64_t> rooms_for_text(const Plan& plan, const TextWorkload& text,
                                         const PlanMachine& machine) {
  std::vector<std::int64_t> rooms;
  if (plan.memory.limits.empty()) return rooms;
  StageMemory working = text.memory({0, 0, text.layers, true, true});
  working.weights = 0;
  for (const std::int64_t limit : of_range(plan.memory.limits, plan.roles.text)) {
    rooms.push_back(limit - machine.program - machine.threads * working.per_thread -
                    working.total());
  }
  return rooms;
}

// On each rank without room for all its layers, as few of them as possible go to the host.
void fit_text_by_host(DeviceMap& map, const TextWorkload& text,
                      const std::vector<std::int64_t>& rooms) {
  std::vector<std::int64_t> layers(rooms.size(), 0), kept(rooms.size());
  for (const int rank : map.layer_rank) ++layers[index(rank)];
  for (std::size_t r = 0; r < rooms.size(); ++r) {
    std::int64_t room = rooms[r];
    if (r == index(map.embedding_rank)) room -= text.embedding_bytes;
    kept[r] = layers[r];
    if (room >= layers[r] * text.layer_bytes) continue;
    const std::int64_t streamed = text.streamed_layer.bytes,
                       window = text.streamed_layer.host_window;
    room -= layers[r] * (text.layer_bytes - streamed) + window + window / 10;
    kept[r] = streamed == 0 ? 0 : std::clamp<std::int64_t>(room / streamed, 0, layers[r]);
  }
  for (const int rank : map.layer_rank) map.on_host.push_back(kept[index(rank)]-- <= 0);
}

DeviceMap assign_text(const Plan& plan, const TextWorkload& text, const PlanMachine& machine,
                      const ParallelRequest& request, const std::string& file) {
  const int ranks = plan.roles.text.count;
  const std::string& asked = request.device_map;
  DeviceMap map;
  const std::vector<std::int64_t> rooms = rooms_for_text(plan, text, machine);
  if (!file.empty()) {
    map = device_map_from_json(file, asked, text.layers, ranks);
  } else if (asked != "auto") {
    map = parse_device_map(asked, text.layers, ranks);
  } else {
    map = balanced_device_map(text.layers, text.layer_bytes, text.embedding_bytes, ranks, rooms);
  }
  const WeightsChoice choice = request.text_weights.value_or(request.weights);
  if (choice == WeightsChoice::host) {
    map.on_host.assign(index(static_cast<int>(text.layers)), true);
  } else if (asked == "auto" && choice != WeightsChoice::replicated && !rooms.empty()) {
    fit_text_by_host(map, text, rooms);
  }
  return map;
}

// A rank as a member of a denoising group.
struct Member {
  std::size_t replica;
  int rank;  // of the group
};
std::optional<Member> member(const Roles& roles, int rank) {
  const auto found = std::ranges::find_if(
      roles.denoise, [&](const RankRange& range) { return range.contains(rank); });
  if (found == roles.denoise.end()) return std::nullopt;
  return Member{static_cast<std::size_t>(found - roles.denoise.begin()), rank - found->first};
}

void keep_larger(StageMemory& mine, const StageMemory& other) {
  mine.weights = std::max(mine.weights, other.weights);
  mine.working = std::max(mine.working, other.working);
  mine.per_thread = std::max(mine.per_thread, other.per_thread);
}

// Of the plan with its queue_bytes, without offloading.
MemoryPlan memory_of(const Plan& plan, const Workload& workload, const PlanMachine& machine) {
  const std::int64_t waiting = machine.count_waiting_embeddings ? plan.queue_bytes : 0;
  MemoryPlan memory;
  memory.limits = plan.memory.limits;
  memory.program = machine.program;
  memory.threads = machine.threads;
  memory.decoder = plan.memory.decoder;
  memory.unloads_decoder = memory.decoder == WeightsChoice::host;
  memory.ranks.resize(index(plan.ranks));
  for (const DeviceMap::Stage& stage : plan.device_map.stages()) {
    StageMemory& mine = memory.ranks.at(index(plan.roles.text.first + stage.rank)).text;
    StageMemory more = workload.text.memory(stage);
    if (stage.on_host) {
      StreamedWeights streamed = workload.text.streamed_layer;
      streamed.bytes *= stage.last - stage.first;
      more = without_streamed(more, streamed, 0, streamed.host_window);
    }
    more.weights += mine.weights;
    keep_larger(mine, more);
  }
  memory.ranks.at(index(plan.embeddings_rank())).text.working += waiting;
  // In split mode replicas ask for one batch after the other, but when text ranks begin to help
  // they get all that wait.
  const Roles& roles = plan.roles;
  const bool by_batch = roles.mode == Mode::split &&
                        std::ranges::find(roles.denoise, roles.text) == roles.denoise.end();
  for (std::size_t r = 0; r < memory.ranks.size(); ++r) {
    RankMemory& mine = memory.ranks[r];
    mine.embeddings = by_batch && !roles.text.contains(static_cast<int>(r))
                          ? std::min(waiting, workload.largest_embedding_bytes)
                          : waiting;
    const std::optional<Member> denoises = member(roles, static_cast<int>(r));
    for (const ClipPlan& size : plan.sizes) {
      StageMemory denoise = size.ranks[r].denoise;
      if (denoises) {
        const int ranks = roles.denoise[denoises->replica].count;
        denoise = without_streamed(denoise, size.workload.streamed,
                                   plan.weights.kept_part(denoises->replica, denoises->rank, ranks),
                                   plan.weights.window);
      }
      keep_larger(mine.denoise, denoise);
      keep_larger(mine.decode, size.ranks[r].decode);
    }
    mine.decodes_between_steps = roles.mode == Mode::split && mine.denoise.used() &&
                                 roles.decode.front().contains(static_cast<int>(r));
  }
  return memory;
}

// With the longest queue of text embeddings that fits; of all clips if there are no limits.
void predict_memory(Plan& plan, const Workload& workload, const PlanMachine& machine) {
  plan.embedding_bytes = plan.queue_bytes = workload.embedding_bytes;
  plan.memory = memory_of(plan, workload, machine);
  if (plan.memory.fits()) return;
  if (machine.count_waiting_embeddings) {
    const std::size_t batches = plan.roles.mode == Mode::split ? 1 : plan.roles.denoise.size();
    plan.queue_bytes = std::min(plan.embedding_bytes, static_cast<std::int64_t>(batches) *
                                                          workload.largest_embedding_bytes);
  }
  plan.memory = with_offloading(memory_of(plan, workload, machine));
  // Embeddings count as working memory where they are made, which is predicted with a tenth more.
  const std::int64_t more = plan.memory.room() * 10 / 11;
  if (!machine.count_waiting_embeddings || more <= 0) return;
  const MemoryPlan chosen = plan.memory;
  plan.queue_bytes = std::min(plan.embedding_bytes, plan.queue_bytes + more);
  plan.memory = memory_of(plan, workload, machine);
  plan.memory.offloads = chosen.offloads;
  plan.memory.unloads_decoder = chosen.unloads_decoder;
}

// Bytes of weights that a rank of this replica fetches in each step.
double fetched_by(const WeightPlan& weights, std::size_t replica, int rank, int ranks) {
  return (1 - weights.kept_part(replica, rank, ranks)) * static_cast<double>(weights.all);
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
  weights = {.residence = residence, .all = streamed.bytes};
  if (residence == Residence::sharded) weights.window = streamed.gather_window;
  if (residence == Residence::host) weights.window = streamed.host_window;
  if (residence != Residence::replicated && !plan.memory.limits.empty()) {
    const std::vector<double> rooms = rooms_for_weights(plan, workload, machine);
    weights.resident = residence == Residence::host ? 1 : 0;
    bool equal = true;
    for (const RankRange& range : plan.roles.denoise) {
      RankWeights shares = of_range(rooms, range);
      const auto [least, most] = std::ranges::minmax(shares);
      if (residence == Residence::host) {
        weights.resident = std::min(
            weights.resident,
            0.999 * least / static_cast<double>(std::max<std::int64_t>(1, streamed.bytes)));
      }
      equal = equal && least > 0.99 * most;
      if (most <= 0) shares.assign(shares.size(), 1);
      weights.shares.push_back(std::move(shares));
    }
    if (equal || residence == Residence::host) weights.shares.clear();
    if (moves_all) weights.resident = 0;
  }
  double kept = 0, fetched = 0;
  for (std::size_t replica = 0; replica < plan.roles.denoise.size(); ++replica) {
    const int ranks = plan.roles.denoise[replica].count;
    for (int rank = 0; rank < ranks; ++rank) {
      kept = std::max(kept, weights.kept_part(replica, rank, ranks));
      fetched = std::max(fetched, fetched_by(weights, replica, rank, ranks));
    }
  }
  weights.kept = static_cast<std::int64_t>(kept * static_cast<double>(weights.all));
  weights.fetched = static_cast<std::int64_t>(fetched);
  predict_memory(plan, workload, machine);
  return plan;
}

// Predicted cost of a step on the busiest rank, with weights that arrive while it computes.
double step_cost_with_weights(const Plan& plan) {
  double busiest = 0;
  for (const ClipPlan::OfRank& rank : plan.sizes.front().ranks) {
    busiest = std::max(
        busiest, rank.step.flops + flops_per_byte * static_cast<double>(rank.step.sent_bytes));
  }
  return std::max(busiest, flops_per_byte * static_cast<double>(plan.weights.fetched));
}

// If nothing fits, the plan with the smallest excess.
Plan choose_weights(const Plan& plan, const Workload& workload, const PlanMachine& machine,
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
                            : fits && step_cost_with_weights(other) < step_cost_with_weights(best);
    if (better) best = std::move(other);
  }
  return best;
}

Plan plan_of(const Workload& workload, const PlanMachine& machine, const ParallelRequest& request,
             const std::string& device_map_file) {
  expect(!workload.sizes.empty(), "a plan for no clips");
  Plan plan;
  plan.ranks = machine.ranks;
  plan.roles = assign_roles(request, machine.ranks);
  choose_layouts(plan, workload, machine, request);
  plan.memory.limits = machine.memory_limits.in_plan_order(plan.launched);
  plan.memory.decoder = request.decode_weights.value_or(
      request.weights == WeightsChoice::host ? WeightsChoice::host : WeightsChoice::automatic);
  plan.device_map = assign_text(plan, workload.text, machine, request, device_map_file);
  return choose_weights(plan, workload, machine, request.weights);
}

const Box empty_box{{0}, {0}};

}  // namespace

Plan make_plan(const Workload& workload, const PlanMachine& machine, const ParallelRequest& asked,
               const std::string& device_map_file) {
  const Plan plan = plan_of(workload, machine, asked, device_map_file);
  if (plan.roles.mode != Mode::split || plan.memory.fits()) return plan;
  // Gives the stage that does not fit more ranks, as long as some are left for denoising.
  ParallelRequest request = asked;
  const auto decoders = [](const Plan& some) { return some.roles.decode.front(); };
  for (Plan wider = plan; wider.roles.text.count + decoders(wider).count < machine.ranks;) {
    const auto over = [&](const RankRange& range) {
      for (int r = range.first; r < range.first + range.count; ++r) {
        if (!wider.memory.fits(r)) return true;
      }
      return false;
    };
    const auto more = [](const RankRange& range) { return range.count + 1 + range.count / 8; };
    if (over(wider.roles.text) && !asked.text) {
      request.text = more(wider.roles.text);
    } else if (over(decoders(wider)) && !asked.decode) {
      request.decode = more(decoders(wider));
    } else {
      break;
    }
    try {
      wider = plan_of(workload, machine, request, device_map_file);
    } catch (const Error&) {
      break;  // the remaining ranks cannot form the requested groups
    }
    if (wider.memory.fits()) return wider;
  }
  return plan;
}

Box Plan::tokens(std::size_t size, int rank) const {
  const auto found = member(roles, rank);
  if (!found) return empty_box;
  const DenoiseLayout& layout = sizes.at(size).denoise[found->replica];
  return layout.tokens.box(layout.branch_rank(found->rank));
}

Box Plan::text_tokens(std::size_t size, int rank) const {
  const auto found = member(roles, rank);
  if (!found) return empty_box;
  const DenoiseLayout& layout = sizes.at(size).denoise[found->replica];
  return layout.text.box(layout.branch_rank(found->rank));
}

Box Plan::decoded_latents(std::size_t size, int rank) const {
  const auto found = std::ranges::find_if(
      roles.decode, [&](const RankRange& range) { return range.contains(rank); });
  if (found == roles.decode.end()) return empty_box;
  const auto group = static_cast<std::size_t>(found - roles.decode.begin());
  return sizes.at(size).decode.at(group).latents.box(rank - found->first);
}

}  // namespace reelmesh
