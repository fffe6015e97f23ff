#include "plan/denoise.hpp"

#include <algorithm>
#include <limits>

#include "base/units.hpp"
#include "plan/tokens.hpp"

namespace reelmesh {
namespace {

double number(std::int64_t n) { return static_cast<double>(n); }

// FLOPs per token of a layer's GEMMs, except attention itself: the projections to queries, keys,
// values and output, and the two GEMMs of the MLP.
double products_of_token(const DenoiseWorkload& w) {
  return 2 * number(w.channels()) * (4 * number(w.channels()) + 2 * number(w.mlp_channels));
}

StepCost joint_cost(const DenoiseWorkload& w, const DenoiseLayout& layout, int rank) {
  const int own = layout.branch_rank(rank);
  const AttentionMesh& attention = *layout.attention;
  const std::int64_t batch = w.branches / layout.mesh.cfg;
  StepCost cost;
  cost.flops = number(w.layers) * (number(batch * attention.tokens(own)) * products_of_token(w) +
                                   number(attention.flops(own)));
  cost.sent_bytes = w.layers * w.element_bytes * attention.sent_elements(own);
  if (layout.mesh.cfg > 1) {  // the halves exchange the predictions of their branches, float32
    const std::int64_t values = w.predicted_channels * numel(w.patch);
    cost.sent_bytes += size_of(DType::float32) * values * layout.tokens.box(own).numel();
  }
  return cost;
}

// One relayout within a pair of spatial and temporal attention.
struct Relayout {
  const char* name;
  const Layout &from, &to;
  std::int64_t bytes;  // per element of the layouts

  std::int64_t sent_bytes(int rank) const {
    const Box& held = from.box(rank);
    return (held.numel() - intersect(held, to.box(rank)).numel()) * bytes;
  }
};

std::vector<Relayout> relayouts(const DenoiseWorkload& w, const SpaceTime& l) {
  std::vector<Relayout> all;
  const std::int64_t token = w.branches * w.channels() * w.element_bytes;
  if (l.by_heads) {
    const std::int64_t head = token / w.heads;
    all.push_back({"rows -> heads", l.by_heads->tokens, l.by_heads->heads, 3 * head});
    all.push_back({"heads -> rows", l.by_heads->heads, l.by_heads->tokens, head});
  }
  all.push_back({"frames -> positions", l.spatial, l.temporal, token});
  all.push_back({"positions -> frames", l.temporal, l.spatial, token});
  return all;
}

StepCost space_time_cost(const DenoiseWorkload& w, const DenoiseLayout& layout, int rank) {
  const SpaceTime& l = *layout.space_time;
  const Box &frames = l.spatial.box(rank), &positions = l.temporal.box(rank);
  const double d = number(w.channels());
  const double in_frames = number(frames.numel()), in_positions = number(positions.numel());
  // Multiply-adds per token: projections of self-attention (queries, keys, values, output), of
  // cross-attention to the text (queries, output), and of the MLP.
  const double attention = 4 * d * d, text = 2 * d * d, mlp = 2 * d * number(w.mlp_channels);
  const double products =
      2 * (in_frames * attention + in_positions * (attention + number(w.mlps) * (text + mlp)));
  const double scores =
      4 * d *
      (in_frames * number(l.spatial.global()[1]) + in_positions * number(positions.extent[0]) +
       number(w.mlps) * in_positions * number(w.text_tokens));
  StepCost cost{number(w.layers * w.branches) * (products + scores), 0};
  for (const Relayout& move : relayouts(w, l)) cost.sent_bytes += w.layers * move.sent_bytes(rank);
  return cost;
}

ChosenLayout space_time_layout(const DenoiseWorkload& w, Shard shard, int ranks,
                               const RankWeights& weights) {
  const Shape tokens = w.tokens();
  const auto cut = [&](int rows) {
    return SpaceTime(tokens, ranks / rows, rows, w.heads, weights);
  };
  SpaceTime best = cut(shard == Shard::height ? ranks : 1);
  const bool enough_frames = shard == Shard::automatic && ranks <= tokens[0];
  if (!enough_frames && (shard == Shard::automatic || shard == Shard::grid)) {
    bool found = shard == Shard::automatic;
    for (int rows = 2; rows <= ranks; ++rows) {
      if (ranks % rows != 0 || (shard == Shard::grid && rows == ranks)) continue;
      const SpaceTime grid = cut(rows);
      if (!found || makespan(grid.tokens, weights) < makespan(best.tokens, weights)) best = grid;
      found = true;  // with a prime number of ranks there is no grid, and frames are cut
    }
  }
  ChosenLayout chosen;
  chosen.layout = {.attention_kind = AttentionKind::space_time,
                   .mesh = {1, 1, ranks},
                   .tokens = best.tokens,
                   .text = Layout::replicated({w.text_tokens}, ranks),
                   .latents = latents_of_tokens(best.tokens, w.patch, w.latents),
                   .attention = {},
                   .space_time = best};
  if (ranks == 1) return chosen;
  for (const Relayout& move : relayouts(w, *chosen.layout.space_time)) {
    StepExchange exchange{move.name, w.layers, 0};
    for (int rank = 0; rank < ranks; ++rank) {
      exchange.largest_bytes = std::max(exchange.largest_bytes, move.sent_bytes(rank));
    }
    chosen.exchanges.push_back(exchange);
  }
  return chosen;
}

// The cost of a step: FLOPs / weight of the busiest and the least busy rank, and the maximum of
// bytes that a rank sends.
struct GroupCost {
  double max_work = 0, min_work = std::numeric_limits<double>::infinity();
  std::int64_t max_bytes = 0;

  bool even() const { return max_work <= 1.1 * min_work; }
  double total() const { return max_work + flops_per_byte * number(max_bytes); }
  bool better_than(const GroupCost& other) const {
    return even() != other.even() ? even() : total() < other.total();
  }
};

GroupCost cost_of_group(const DenoiseWorkload& w, const DenoiseLayout& layout,
                        const RankWeights& weights) {
  GroupCost cost;
  for (int rank = 0; rank < layout.mesh.branch_ranks(); ++rank) {  // both halves cost the same
    const StepCost mine = step_cost(w, layout, rank);
    const double work =
        mine.flops / (weights.empty() ? 1.0 : weights[static_cast<std::size_t>(rank)]);
    cost.max_work = std::max(cost.max_work, work);
    cost.min_work = std::min(cost.min_work, work);
    cost.max_bytes = std::max(cost.max_bytes, mine.sent_bytes);
  }
  return cost;
}

std::string to_string(const GroupCost& cost) {
  const std::string work = cost.min_work > 0 ? fmt::format("max/min work of a rank {:.2f}",
                                                           cost.max_work / cost.min_work)
                                             : "some ranks have no work";
  return fmt::format("{}, at most {} sent by a rank in a step", work,
                     format_bytes(number(cost.max_bytes)));
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

ChosenLayout joint_layout(const DenoiseWorkload& w, const MeshRequest& request, Shard shard,
                          int ranks, const RankWeights& weights) {
  MeshRequest wanted = request;
  if (w.branches == 1) {
    if (wanted.ulysses && wanted.ring) wanted.ring = ranks / *wanted.ulysses;
    wanted.cfg = 1;
  } else if (!wanted.cfg) {
    wanted.cfg = ranks / wanted.product() % 2 == 0 ? 2 : 1;
  }
  expect(wanted.product() > 0 && ranks % wanted.product() == 0, "{} of {} ranks", wanted.product(),
         ranks);
  const int branch_ranks = ranks / *wanted.cfg;
  const RankWeights branch_weights = weights_of_branch(weights, branch_ranks);
  ChosenLayout chosen;
  DenoiseLayout& layout = chosen.layout;
  layout.tokens = token_layout(shard, w.tokens(), branch_ranks, branch_weights);
  layout.text = text_layout(w.text_tokens, layout.tokens, branch_weights);
  layout.latents = latents_of_tokens(layout.tokens, w.patch, w.latents);
  int meshes = 0;
  GroupCost best;
  for (int ring = 1; ring <= branch_ranks; ++ring) {
    if (branch_ranks % ring != 0 || wanted.ring.value_or(ring) != ring) continue;
    const int ulysses = branch_ranks / ring;
    if (wanted.ulysses.value_or(ulysses) != ulysses) continue;
    DenoiseLayout candidate = layout;
    candidate.mesh = {*wanted.cfg, ring, ulysses};
    candidate.attention.emplace(
        std::vector{layout.text, layout.tokens},
        AttentionGeometry{w.branches / *wanted.cfg, w.heads, w.head_channels, ring});
    const GroupCost cost = cost_of_group(w, candidate, branch_weights);
    if (++meshes == 1 || cost.better_than(best)) {
      layout = std::move(candidate);
      best = cost;
    }
  }
  expect(meshes > 0, "{} ranks cannot be cfg {} x ring {} x ulysses {}", ranks, *wanted.cfg,
         wanted.ring.value_or(0), wanted.ulysses.value_or(0));
  chosen.why = fmt::format(
      "{}{}; {}",
      !request.cfg && *wanted.cfg == 2 ? "cfg 2 because the number of ranks is even; "
      : request.cfg.value_or(1) == 2 && w.branches == 1
          ? "guidance has one branch, so the ranks of cfg join the ring; "
          : "",
      meshes > 1 ? fmt::format("lowest cost of {} meshes", meshes) : "the only mesh possible",
      to_string(best));
  return chosen;
}

}  // namespace

StepCost step_cost(const DenoiseWorkload& workload, const DenoiseLayout& layout, int rank) {
  return layout.attention_kind == AttentionKind::joint ? joint_cost(workload, layout, rank)
                                                       : space_time_cost(workload, layout, rank);
}

ChosenLayout choose_layout(const DenoiseWorkload& workload, const MeshRequest& request, Shard shard,
                           int ranks, const RankWeights& weights) {
  return workload.attention == AttentionKind::joint
             ? joint_layout(workload, request, shard, ranks, weights)
             : space_time_layout(workload, shard, ranks, weights);
}

}  // namespace reelmesh
