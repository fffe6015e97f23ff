#include "plan/plan.hpp"

#include <algorithm>
#include <optional>

#include "plan/decode.hpp"
#include "plan/fit.hpp"
#include "plan/nodes.hpp"

namespace reelmesh {
namespace {

// The layouts of clips of one size.
void choose_layouts(ClipPlan& clip, const ClipWorkload& workload, FoundLayouts& known,
                    const Roles& roles, const MeshRequest& mesh, Shard shard,
                    const RankWeights& weights) {
  // Of the last search: groups of the same number of ranks with equal weights share its result.
  RankWeights searched;
  for (std::size_t replica = 0; replica < roles.denoise.size(); ++replica) {
    const RankRange& range = roles.denoise[replica];
    const RankWeights own = of_range(weights, range);
    if (replica > 0 && own == searched) {
      clip.denoise.repeat_last();
      continue;
    }
    const ChosenLayout& found =
        known.of_denoising(workload.denoise, {mesh, shard, range.count, own});
    if (clip.denoise.empty()) clip.why = found.why;
    clip.denoise.push_back(found.layout());
    searched = own;
  }
  int ranks_searched = 0;
  for (const RankRange& range : roles.decode) {
    const RankWeights own = of_range(weights, range);
    if (range.count == ranks_searched && own == searched) {
      clip.decode.repeat_last();
      continue;
    }
    clip.decode.push_back(
        known.of_decoding(workload.denoise.size, workload.decode, range.count, own));
    ranks_searched = range.count;
    searched = own;
  }
}

ClipPlan plan_clip(const ClipWorkload& workload, FoundLayouts& known, const Roles& roles,
                   const MeshRequest& mesh, Shard shard, int ranks, const RankWeights& weights) {
  ClipPlan clip;
  clip.workload = workload.denoise;
  Costs& costs = *workload.denoise.costs;
  const std::size_t size = workload.denoise.size;
  clip.ranks.resize(index(ranks));
  choose_layouts(clip, workload, known, roles, mesh, shard, weights);
  for (std::size_t replica = 0; replica < roles.denoise.size(); ++replica) {
    const RankRange& range = roles.denoise[replica];
    const Replica own{static_cast<int>(replica), static_cast<int>(roles.denoise.size())};
    for (int r = 0; r < range.count; ++r) {
      ClipPlan::OfRank& mine = clip.ranks[index(range.first + r)];
      const DenoiseCost cost = costs.denoise(size, clip.denoise[replica], r, own);
      mine.denoise = cost.memory;
      mine.denoise_in_turn = cost.in_turn;
      mine.step = cost.step;
    }
  }
  for (std::size_t group = 0; group < roles.decode.size(); ++group) {
    const RankRange& range = roles.decode[group];
    for (int r = 0; r < range.count; ++r) {
      ClipPlan::OfRank& mine = clip.ranks[index(range.first + r)];
      const StageCost decode = costs.decode(size, clip.decode[group], r);
      mine.decode = decode.memory;
      mine.decode_time = decode.time;
      if (!workload.encodes) continue;
      const StageCost encode = costs.encode(size, clip.decode[group], r);
      mine.encode = encode.memory;
      mine.encode_time = encode.time;
    }
  }
  return clip;
}

// For each rank the launched rank that takes it, such that ranks that exchange most share a node.
std::vector<LaunchedRank> launched_order(const Plan& plan, const PlanMachine& machine,
                                         Order order) {
  if (machine.node_of.empty() || order == Order::rank) return launched_in_order(index(plan.ranks));
  const Mesh& mesh = plan.sizes.front().denoise.front().mesh;
  return order_by_node(
      machine.node_of,
      ranges_to_colocate(plan.roles.denoise, {mesh.branch_ranks(), mesh.ulysses}, machine.node_of));
}

// Layouts depend on the weights of each rank, and the placement of ranks depends on the layouts.
// If weights were measured for launched ranks, both are computed in turn, for at most max_rounds.
// Layouts and weights of the plan always agree, but if the rounds do not converge, ranks that
// exchange most may be on different nodes.
void choose_layouts(Plan& plan, const Workload& workload, const PlanMachine& machine,
                    const ParallelRequest& request) {
  constexpr int max_rounds = 4;
  const MeshRequest mesh{request.cfg, request.ulysses, request.ring};
  const auto known = workload.found != nullptr ? workload.found : std::make_shared<FoundLayouts>();
  plan.launched = launched_in_order(index(plan.ranks));
  for (int round = 0; round < max_rounds; ++round) {
    plan.rank_weights = machine.rank_weights.in_plan_order(plan.launched);
    plan.sizes.clear();
    for (const ClipWorkload& size : workload.sizes) {
      plan.sizes.push_back(
          plan_clip(size, *known, plan.roles, mesh, request.shard, plan.ranks, plan.rank_weights));
    }
    std::vector<LaunchedRank> launched = launched_order(plan, machine, request.order);
    const bool converged = launched == plan.launched;
    const bool independent =
        machine.rank_weights.by_plan_rank || machine.rank_weights.values.empty();
    if (!converged && (independent || round + 1 < max_rounds)) plan.launched = std::move(launched);
    if (converged || independent) break;
  }
  for (const LaunchedRank rank : plan.launched) {
    plan.node.push_back(machine.node_of.empty() ? 0 : machine.node_of.at(index(number_of(rank))));
  }
}

// What each text rank has left for the weights of the text encoder; empty without limits.
std::vector<std::int64_t> rooms_for_text(const Plan& plan, const Workload& workload,
                                         const PlanMachine& machine) {
  std::vector<std::int64_t> rooms;
  if (plan.memory.limits.empty()) return rooms;
  StageMemory working = workload.costs->text({0, 0, workload.text.layers, true, true}).memory;
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
    kept[r] = layers[r];
    if (room >= layers[r] * text.layer_bytes) continue;
    const std::int64_t streamed = text.streamed_layer.bytes,
                       window = text.streamed_layer.host_window;
    room -= layers[r] * (text.layer_bytes - streamed) + window;
    kept[r] = streamed == 0 ? 0 : std::clamp<std::int64_t>(room / streamed, 0, layers[r]);
  }
  for (const int rank : map.layer_rank) map.on_host.push_back(kept[index(rank)]-- <= 0);
}

DeviceMap assign_text(const Plan& plan, const Workload& workload, const PlanMachine& machine,
                      const ParallelRequest& request, const std::string& file) {
  const TextWorkload& text = workload.text;
  const int ranks = plan.roles.text.count;
  const std::string& asked = request.device_map;
  DeviceMap map;
  const std::vector<std::int64_t> rooms = rooms_for_text(plan, workload, machine);
  if (!file.empty()) {
    map = device_map_from_json(file, asked, text.layers, ranks);
  } else if (asked != "auto") {
    map = parse_device_map(asked, text.layers, ranks);
  } else {
    map = balanced_device_map(text.layers, text.layer_bytes, ranks, rooms);
  }
  const WeightsChoice choice = request.text_weights.value_or(request.weights);
  if (choice == WeightsChoice::host) {
    map.on_host.assign(index(static_cast<int>(text.layers)), true);
  } else if (asked == "auto" && choice != WeightsChoice::replicated && !rooms.empty()) {
    fit_text_by_host(map, text, rooms);
  }
  return map;
}

Plan plan_as_requested(const Workload& workload, const PlanMachine& machine,
                       const ParallelRequest& request, const std::string& device_map_file) {
  expect(!workload.sizes.empty(), "a plan for no clips");
  Plan plan;
  plan.ranks = machine.ranks;
  plan.roles = assign_roles(request, machine.ranks);
  choose_layouts(plan, workload, machine, request);
  plan.memory.limits = machine.memory_limits.in_plan_order(plan.launched);
  plan.memory.decoder = request.decode_weights.value_or(
      request.weights == WeightsChoice::host ? WeightsChoice::host : WeightsChoice::automatic);
  plan.device_map = assign_text(plan, workload, machine, request, device_map_file);
  plan.text_time.resize(index(plan.ranks));
  for (const DeviceMap::Stage& stage : plan.device_map.stages()) {
    plan.text_time.at(index(plan.roles.text.first + stage.rank)) +=
        workload.costs->text(stage).time;
  }
  return with_chosen_weights(plan, workload, machine, request.weights);
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

const Box empty_box{{0}, {0}};

// In split mode, text and decode get more ranks while they do not fit.
Plan plan_with_more_ranks(const Workload& workload, const PlanMachine& machine,
                          const ParallelRequest& asked, const std::string& device_map_file) {
  Plan plan = plan_as_requested(workload, machine, asked, device_map_file);
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
      wider = plan_as_requested(workload, machine, request, device_map_file);
    } catch (const Error&) {
      break;  // the remaining ranks cannot form the requested groups
    }
    if (wider.memory.fits()) return wider;
  }
  return plan;
}

}  // namespace

Plan make_plan(const Workload& workload, const PlanMachine& machine, const ParallelRequest& asked,
               const std::string& device_map_file) {
  // Weights leave ranks only if nothing else helps.
  ParallelRequest resident = asked;
  if (asked.weights == WeightsChoice::automatic) resident.weights = WeightsChoice::replicated;
  const WeightsChoice text = asked.text_weights.value_or(asked.weights);
  if (text == WeightsChoice::automatic || text == WeightsChoice::sharded) {
    resident.text_weights = WeightsChoice::replicated;
  }
  Plan plan = plan_with_more_ranks(workload, machine, resident, device_map_file);
  if (!plan.memory.fits()) plan = plan_with_more_ranks(workload, machine, asked, device_map_file);
  return plan;
}

void complete_plan(Plan& plan, const Workload& workload) {
  if (plan.weights.residence != Residence::sharded) return;
  for (std::size_t replica = 0; replica < plan.roles.denoise.size(); ++replica) {
    const RankRange& range = plan.roles.denoise[replica];
    const RankWeights shares =
        plan.weights.shares.empty() ? RankWeights() : plan.weights.shares[replica];
    const Replica own{static_cast<int>(replica), static_cast<int>(plan.roles.denoise.size())};
    const std::int64_t times =
        workload.trained_clips > 0 ? own.share_of(workload.trained_clips) : 1;
    for (int rank = 0; rank < range.count; ++rank) {
      const std::int64_t sent = times * workload.costs->sent_weights(shares, rank, range.count);
      for (ClipPlan& size : plan.sizes) {
        size.ranks[index(range.first + rank)].step.sent_weights = sent;
      }
    }
  }
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
