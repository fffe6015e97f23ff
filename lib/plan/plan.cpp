#include "plan/plan.hpp"

#include <algorithm>
#include <optional>

#include "plan/decode.hpp"
#include "plan/fit.hpp"
#include "plan/nodes.hpp"

namespace reelmesh {
namespace {

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
    if (replica == 0 || own != searched) {
      ChosenLayout chosen = choose_layout(workload.denoise, mesh, shard, range.count, own);
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
      ClipPlan::OfRank& mine = clip.ranks[index(range.first + r)];
      mine.decode = workload.decode.memory(clip.decode.back(), r);
      if (workload.encode) mine.encode = workload.encode(clip.decode.back(), r);
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
  plan.launched = launched_in_order(index(plan.ranks));
  for (int round = 0; round < max_rounds; ++round) {
    plan.rank_weights = machine.rank_weights.in_plan_order(plan.launched);
    plan.sizes.clear();
    for (const ClipWorkload& size : workload.sizes) {
      plan.sizes.push_back(
          plan_clip(size, plan.roles, mesh, request.shard, plan.ranks, plan.rank_weights));
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
  plan.device_map = assign_text(plan, workload.text, machine, request, device_map_file);
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
  const Plan plan = plan_as_requested(workload, machine, asked, device_map_file);
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
  if (plan.memory.fits()) return plan;
  return plan_with_more_ranks(workload, machine, asked, device_map_file);
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
