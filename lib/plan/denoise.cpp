#include "plan/denoise.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/units.hpp"
#include "layout/space_time.hpp"
#include "plan/decode.hpp"
#include "plan/tokens.hpp"

namespace reelmesh {
namespace {

// Whether costs have seconds; not yet while the workload is being completed.
bool is_timed(const DenoiseWorkload& w) {
  return w.costs != nullptr && w.costs->whole_step(w.size).timed();
}

double number(std::int64_t n) { return static_cast<double>(n); }

// Work / weight of the busiest and the least busy rank of a step, in seconds if times are known and
// otherwise in FLOPs, the maximum of bytes that a rank sends, and what they cost.
struct GroupCost {
  double max_work = 0, min_work = std::numeric_limits<double>::infinity();
  std::int64_t max_bytes = 0;
  double messages = 0;
  bool timed = false;

  bool even() const { return max_work <= 1.1 * min_work; }
  double total() const { return max_work + messages; }
  bool better_than(const GroupCost& other) const {
    if (timed) return total() < other.total();
    return even() != other.even() ? even() : total() < other.total();
  }
};

GroupCost cost_of_group(const DenoiseWorkload& w, const LayoutCandidate& candidate) {
  const RankWeights& weights = candidate.layout.weights;
  GroupCost cost;
  cost.timed = is_timed(w);
  for (int rank = 0; rank < candidate.layout.tokens.ranks(); ++rank) {  // both halves cost the same
    const StepCost mine = estimated_step(w, candidate, rank);
    const double work = (cost.timed ? mine.time.computation : mine.flops) /
                        (weights.empty() ? 1.0 : weights[static_cast<std::size_t>(rank)]);
    cost.max_work = std::max(cost.max_work, work);
    cost.min_work = std::min(cost.min_work, work);
    cost.max_bytes = std::max(cost.max_bytes, mine.sent_bytes);
    cost.messages = std::max(
        cost.messages, cost.timed ? mine.time.network : flops_per_byte * number(mine.sent_bytes));
  }
  return cost;
}

// The seconds of a step by dry runs of its ranks, the busiest by estimate first; none as soon as
// they exceed `bound`.
std::optional<GroupCost> dry_run_cost(const DenoiseWorkload& w, const LayoutCandidate& candidate,
                                      double bound) {
  const DenoiseLayout& layout = candidate.layout;
  const auto weight = [&](int rank) {
    return layout.weights.empty() ? 1.0 : layout.weights[static_cast<std::size_t>(rank)];
  };
  std::vector<std::pair<double, int>> ranks;
  for (int rank = 0; rank < layout.tokens.ranks(); ++rank) {  // both halves cost the same
    ranks.emplace_back(-estimated_step(w, candidate, rank).time.total() / weight(rank), rank);
  }
  std::ranges::stable_sort(ranks, {}, &std::pair<double, int>::first);
  GroupCost cost{.timed = true};
  for (const auto& [estimate, rank] : ranks) {
    const StepCost step = w.costs->denoise(w.size, layout, rank, {}).step;
    const double work = (step.time.computation + step.time.memory) / weight(rank);
    cost.max_work = std::max(cost.max_work, work);
    cost.min_work = std::min(cost.min_work, work);
    cost.messages = std::max(cost.messages, step.time.network);
    cost.max_bytes = std::max(cost.max_bytes, step.sent_bytes);
    if (cost.total() > bound) return std::nullopt;
  }
  return cost;
}

// The candidate whose step is the shortest by dry runs; of many ranks, of the candidates whose
// estimated step is nearly as short as that of `best`. Its estimate becomes that time.
std::size_t fastest_by_dry_runs(const DenoiseWorkload& w,
                                const std::vector<LayoutCandidate>& candidates,
                                std::vector<GroupCost>& costs, std::size_t best) {
  const int ranks = candidates[best].layout.mesh.ranks();
  const double near = w.size >= few_sizes || ranks > 256 ? 1.15 : ranks > 8 ? 3 : never;
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (costs[i].total() <= near * costs[best].total()) {
      order.emplace_back(costs[i].total(), i);
    }
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, std::size_t>::first);
  double bound = std::numeric_limits<double>::infinity();
  for (const auto& [estimate, i] : order) {
    const auto cost = dry_run_cost(w, candidates[i], bound);
    if (!cost || cost->total() >= bound) continue;
    bound = cost->total();
    costs[i] = *cost;
    best = i;
  }
  return best;
}

std::string described(const GroupCost& cost) {
  const std::string work = cost.min_work > 0 ? fmt::format("max/min work of a rank {:.2f}",
                                                           cost.max_work / cost.min_work)
                                             : "some ranks have no work";
  return fmt::format(
      "{}, at most {} sent by a rank in a step{}", work, format_bytes(number(cost.max_bytes)),
      cost.timed ? fmt::format(", about {}", format_short_seconds(cost.total())) : "");
}

// With cfg 2 two ranks have the same boxes, one in each half of the group: the smaller of their
// weights, for each rank of a half.
RankWeights weights_of_branch(const RankWeights& weights, int branch_ranks) {
  if (weights.empty()) return {};
  RankWeights smaller(weights.begin(), weights.begin() + branch_ranks);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    double& mine = smaller[i % smaller.size()];
    mine = std::min(mine, weights[i]);
  }
  return smaller;
}

// The sizes of the axes that are asked for, with each possible cfg. The preferred cfg is first;
// there are others only if times are known.
std::vector<MeshRequest> wanted_meshes(const DenoiseWorkload& w, const LayoutRequest& request) {
  MeshRequest wanted = request.mesh;
  std::vector<int> cfgs{wanted.cfg.value_or(1)};
  if (w.branches == 1) {
    if (wanted.ulysses && wanted.ring) wanted.ring = request.ranks / *wanted.ulysses;
    cfgs = {1};
  } else if (!wanted.cfg && request.ranks / wanted.product() % 2 == 0) {
    cfgs = {2};
    const bool can_be_1 = !wanted.ring || !wanted.ulysses;
    if (is_timed(w) && can_be_1) cfgs.push_back(1);
  }
  std::vector<MeshRequest> meshes;
  for (const int cfg : cfgs) {
    wanted.cfg = cfg;
    expect(wanted.product() > 0 && request.ranks % wanted.product() == 0, "{} of {} ranks",
           wanted.product(), request.ranks);
    meshes.push_back(wanted);
  }
  return meshes;
}

// How tokens may be cut: as asked; if that is open and times are known, in every way that can be
// asked for, the preferred one first.
std::vector<Shard> possible_cuts(const DenoiseWorkload& w, const LayoutRequest& request) {
  if (request.shard != Shard::automatic || !is_timed(w)) return {request.shard};
  return {Shard::automatic, Shard::height, Shard::frames, Shard::grid};
}

// Adds the layouts of one cut of the tokens and one cfg, unless there are some with the same boxes.
void add_mesh_layouts(std::vector<LayoutCandidate>& candidates, const DenoiseWorkload& w,
                      const LayoutRequest& request, const MeshRequest& wanted, Shard shard) {
  const bool whole_text = w.layouts == LayoutKind::mesh_whole_text;
  const int branch_ranks = request.ranks / *wanted.cfg;
  DenoiseLayout layout;
  layout.weights = weights_of_branch(request.weights, branch_ranks);
  layout.tokens = token_layout(shard, w.tokens(), branch_ranks, layout.weights);
  const bool is_known = std::ranges::any_of(candidates, [&](const LayoutCandidate& known) {
    return known.layout.mesh.cfg == *wanted.cfg && known.layout.tokens == layout.tokens;
  });
  if (is_known) return;
  layout.text = whole_text ? Layout::replicated({w.text_tokens}, branch_ranks)
                           : text_layout(w.text_tokens, layout.tokens, layout.weights);
  layout.latents = latents_of_tokens(layout.tokens, w.patch, w.latents);
  std::vector<Layout> segments{layout.tokens};
  if (!whole_text) segments.push_back(layout.text);
  for (int ring = 1; ring <= branch_ranks; ++ring) {
    if (branch_ranks % ring != 0 || wanted.ring.value_or(ring) != ring) continue;
    const int ulysses = branch_ranks / ring;
    if (wanted.ulysses.value_or(ulysses) != ulysses) continue;
    layout.mesh = {*wanted.cfg, ring, ulysses};
    const AttentionGeometry geometry{w.clips * w.branches / *wanted.cfg, w.heads, w.head_channels,
                                     ring};
    candidates.push_back({layout, AttentionMesh(segments, geometry)});
  }
}

}  // namespace

std::vector<LayoutCandidate> mesh_layouts(const DenoiseWorkload& w, const LayoutRequest& request) {
  std::vector<LayoutCandidate> candidates;
  const std::vector<MeshRequest> meshes = wanted_meshes(w, request);
  for (const MeshRequest& wanted : meshes) {
    for (const Shard shard : possible_cuts(w, request)) {
      add_mesh_layouts(candidates, w, request, wanted, shard);
    }
  }
  const MeshRequest& wanted = meshes.front();
  expect(!candidates.empty(), "{} ranks cannot be cfg {} x ring {} x ulysses {}", request.ranks,
         *wanted.cfg, wanted.ring.value_or(0), wanted.ulysses.value_or(0));
  return candidates;
}

std::vector<LayoutCandidate> frame_layouts(const DenoiseWorkload& w, const LayoutRequest& request) {
  const Shape tokens = w.tokens();
  const int ranks = request.ranks;
  const auto [shard, weights] = std::tie(request.shard, request.weights);
  int best = shard == Shard::height ? ranks : 1;  // parts of rows
  const bool enough_frames = shard == Shard::automatic && ranks <= tokens[0];
  const auto cut = [&, &weights = weights](int rows) {
    return Layout::grid(tokens, {ranks / rows, rows, 1}, weights);
  };
  Layout layout = cut(best);
  if (!enough_frames && (shard == Shard::automatic || shard == Shard::grid)) {
    bool found = shard == Shard::automatic;
    for (int rows = 2; rows <= ranks; ++rows) {
      if (ranks % rows != 0 || (shard == Shard::grid && rows == ranks)) continue;
      const Layout grid = cut(rows);
      if (!found || makespan(grid, weights) < makespan(layout, weights)) {
        layout = grid;
        best = rows;
      }
      found = true;  // with a prime number of ranks there is no grid, and frames are cut
    }
  }
  std::vector<LayoutCandidate> candidates;
  const auto add = [&, &weights = weights](int rows, const Layout& tokens_cut) {
    candidates.push_back({{.mesh = {1, 1, ranks},
                           .tokens = tokens_cut,
                           .text = Layout::replicated({w.text_tokens}, ranks),
                           .latents = latents_of_tokens(tokens_cut, w.patch, w.latents),
                           .parts = {ranks / rows, rows, 1},
                           .weights = weights},
                          std::nullopt});
  };
  add(best, layout);
  const bool open = shard == Shard::automatic && is_timed(w);
  for (int rows = 1; open && rows <= ranks; ++rows) {
    if (ranks % rows == 0 && rows != best) add(rows, cut(rows));
  }
  return candidates;
}

std::vector<LayoutCandidate> possible_layouts(const DenoiseWorkload& w,
                                              const LayoutRequest& request) {
  return w.layouts == LayoutKind::frames ? frame_layouts(w, request) : mesh_layouts(w, request);
}

StepCost estimated_step(const DenoiseWorkload& w, const LayoutCandidate& candidate, int rank) {
  const DenoiseLayout& layout = candidate.layout;
  const int own = layout.branch_rank(rank);
  const WholeStep whole = w.costs->whole_step(w.size);
  const auto& attention = candidate.attention;
  if (!attention) {
    const double share = number(layout.tokens.box(own).numel()) /
                         number(std::max<std::int64_t>(1, numel(layout.tokens.global())));
    return {.flops = share * (whole.attention + whole.others),
            .time = {.computation = share * (whole.attention_seconds + whole.other_seconds)}};
  }
  const double all = number(std::max<std::int64_t>(1, attention->all_tokens()));
  const double heads = number(attention->heads(own)) / number(w.heads);
  const double part_of_others = number(attention->tokens(own)) / all / layout.mesh.cfg;
  const double part_of_attention =
      number(attention->row_tokens(own)) / all * heads / layout.mesh.cfg;
  StepCost cost;
  cost.flops = part_of_others * whole.others + part_of_attention * whole.attention;
  cost.sent_bytes = w.layers * w.element_bytes * attention->sent_elements(own);
  if (layout.mesh.cfg > 1) {  // the halves exchange the predictions of their branches, float32
    cost.sent_bytes += w.clips * size_of(DType::float32) * w.predicted_channels * numel(w.patch) *
                       layout.tokens.box(own).numel();
  }
  if (!whole.timed()) return cost;
  cost.time.computation =
      part_of_others * whole.other_seconds + part_of_attention * whole.attention_seconds;
  // Queries, keys, values and results to the others of a row; keys and values to other rows.
  const Mesh& mesh = layout.mesh;
  const std::int64_t messages =
      w.layers * (4 * (mesh.ulysses - 1) + (mesh.ring - 1)) + (mesh.cfg - 1);
  if (messages > 0) {
    cost.time.network = w.costs->message_seconds(mesh.ranks(), messages, cost.sent_bytes);
  }
  return cost;
}

const ChosenLayout& FoundLayouts::of_denoising(const DenoiseWorkload& w,
                                               const LayoutRequest& request) {
  const MeshRequest& mesh = request.mesh;
  const auto [entry, is_new] = denoising_.try_emplace(
      {w.size, {mesh.cfg, mesh.ring, mesh.ulysses}, request.shard, request.ranks, request.weights});
  if (is_new) entry->second = choose_layout(w, request);
  return entry->second;
}

const DecodeLayout& FoundLayouts::of_decoding(std::size_t size, const DecodeWorkload& workload,
                                              int ranks, const RankWeights& weights) {
  const auto [entry, is_new] = decoding_.try_emplace({size, ranks, weights});
  if (is_new) entry->second = decode_layout(workload, ranks, weights);
  return entry->second;
}

ChosenLayout choose_layout(const DenoiseWorkload& w, const LayoutRequest& request) {
  std::vector<LayoutCandidate> candidates = possible_layouts(w, request);
  expect(!candidates.empty(), "no layout for {} ranks", request.ranks);
  if (candidates.size() == 1 && !candidates.front().attention) {
    return {std::move(candidates.front()), {}};
  }
  std::vector<GroupCost> costs;
  for (const LayoutCandidate& candidate : candidates) costs.push_back(cost_of_group(w, candidate));
  std::size_t best = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (costs[i].better_than(costs[best])) best = i;
  }
  if (costs[best].timed) best = fastest_by_dry_runs(w, candidates, costs, best);
  const GroupCost lowest = costs[best];
  const int cfg = candidates[best].layout.mesh.cfg;
  std::string why = fmt::format(
      "{}{}; {}",
      !request.mesh.cfg && cfg == 2 && !lowest.timed ? "cfg 2 because the number of ranks is even; "
      : request.mesh.cfg.value_or(1) == 2 && w.branches == 1
          ? "guidance has one branch, so the ranks of cfg join the ring; "
          : "",
      candidates.size() > 1 ? fmt::format("{} of {} {}", lowest.timed ? "fastest" : "lowest cost",
                                          candidates.size(), lowest.timed ? "layouts" : "meshes")
                            : "the only mesh possible",
      described(lowest));
  return {std::move(candidates[best]), std::move(why)};
}

}  // namespace reelmesh
