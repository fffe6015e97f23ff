#include "plan/denoise.hpp"

#include <algorithm>
#include <functional>

#include "base/units.hpp"
#include "plan/bisect.hpp"
#include "plan/speeds.hpp"

namespace reelmesh {
namespace {

std::int64_t product(const MeshRequest& r) {
  return std::int64_t{1} * r.cfg.value_or(1) * r.ulysses.value_or(1) * r.ring.value_or(1);
}

AttendMesh attention_of(const DenoiseLayout& layout, const DenoiseSizes& sizes) {
  return {{layout.text, layout.grid},
          {sizes.branches / layout.mesh.cfg, sizes.heads, sizes.head_channels, layout.mesh.ring}};
}

double speed_of(const std::vector<double>& speeds, int rank) {
  return speeds.empty() ? 1.0 : speeds.at(static_cast<std::size_t>(rank));
}

// Done earlier, or at the same time with a larger smallest box.
bool more_even(const Layout& a, const Layout& b, const std::vector<double>& speeds) {
  const auto smallest = [](const Layout& layout) {
    std::int64_t least = numel(layout.global());
    for (int r = 0; r < layout.ranks(); ++r) least = std::min(least, layout.box(r).numel());
    return least;
  };
  const double time_a = longest(a, speeds), time_b = longest(b, speeds);
  return time_a != time_b ? time_a < time_b : smallest(a) > smallest(b);
}

// Of the ranks that have the same boxes in both halves, the slower ones.
std::vector<double> slower(const std::vector<double>& speeds, const Mesh& halves) {
  std::vector<double> result(speeds.begin(),
                             speeds.begin() + (speeds.empty() ? 0 : halves.branch_ranks()));
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    double& mine = result[i % result.size()];
    mine = std::min(mine, speeds[i]);
  }
  return result;
}

struct Cost {
  double most = 0, least = 0;  // operations of the fullest and the emptiest rank, by their speeds
  std::int64_t bytes = 0;      // of the rank that sends most
  bool even() const { return most <= 1.1 * least; }
  bool less_than(const Cost& other) const {
    if (even() != other.even()) return even();
    const auto total = [](const Cost& cost) {
      return cost.most + flops_per_byte * static_cast<double>(cost.bytes);
    };
    return total(*this) < total(other);
  }
};

Cost cost_of(const DenoiseLayout& layout, const DenoiseSizes& sizes,
             const std::vector<double>& speeds) {
  Cost cost{0, 1e300, 0};
  for (int rank = 0; rank < layout.mesh.branch_ranks(); ++rank) {  // the other half is the same
    const double time = layout.step_flops(sizes, rank) / speed_of(speeds, rank);
    cost.most = std::max(cost.most, time);
    cost.least = std::min(cost.least, time);
    cost.bytes = std::max(cost.bytes, layout.step_bytes(sizes, rank));
  }
  return cost;
}

std::string to_string(const Cost& cost) {
  const std::string work =
      cost.least > 0 ? fmt::format("the fullest rank has {:.2f} times the work of the emptiest",
                                   cost.most / cost.least)
                     : "some ranks have no work";
  return fmt::format("{}, a rank sends up to {} a step", work,
                     format_bytes(static_cast<double>(cost.bytes)));
}

}  // namespace

std::string to_string(const Mesh& mesh) {
  return fmt::format("cfg {} x ring {} x ulysses {}", mesh.cfg, mesh.ring, mesh.ulysses);
}

double DenoiseLayout::step_flops(const DenoiseSizes& sizes, int rank) const {
  const AttendMesh attention = attention_of(*this, sizes);
  const int place = rank % mesh.branch_ranks();
  const auto batch = static_cast<double>(sizes.branches / mesh.cfg);
  const auto channels = static_cast<double>(sizes.heads * sizes.head_channels);
  // Queries, keys, values, output: 4 products of channels × channels; the two of the feed-forward
  // layer have 4 times as many each.
  const double products =
      24 * batch * static_cast<double>(attention.tokens(place)) * channels * channels;
  return static_cast<double>(sizes.layers) *
         (products + static_cast<double>(attention.flops(place)));
}

std::int64_t DenoiseLayout::step_bytes(const DenoiseSizes& sizes, int rank) const {
  const int place = rank % mesh.branch_ranks();
  const std::int64_t attention =
      sizes.layers * sizes.element_bytes * attention_of(*this, sizes).sent_elements(place);
  // The prediction of a branch, float32, for that of the other.
  const std::int64_t prediction =
      mesh.cfg > 1 ? 4 * sizes.token_values * grid.box(place).numel() : 0;
  return attention + prediction;
}

std::int64_t group_size(const MeshRequest& request, int available) {
  const std::int64_t given = product(request);
  if (request.cfg && request.ulysses && request.ring) return given;
  return std::max(given, available / given * given);
}

DenoiseLayout denoise_layout(const MeshRequest& request, Shard shard, const DenoiseSizes& sizes,
                             int ranks, const std::vector<double>& speeds) {
  MeshRequest wanted = request;
  if (sizes.branches == 1) {
    // What was meant for a second branch goes to the ring, or to what is chosen.
    if (wanted.ulysses && wanted.ring) wanted.ring = ranks / *wanted.ulysses;
    wanted.cfg = 1;
  } else if (!wanted.cfg) {
    wanted.cfg = ranks / product(wanted) % 2 == 0 ? 2 : 1;
  }
  expect(product(wanted) > 0 && ranks % product(wanted) == 0, "{} of {} ranks", product(wanted),
         ranks);
  const int branch_ranks = ranks / *wanted.cfg;
  const std::vector<double> branch_speeds = slower(speeds, {*wanted.cfg, branch_ranks, 1});
  DenoiseLayout layout;
  layout.grid = token_layout(shard, sizes.grid, branch_ranks, branch_speeds);
  layout.text = text_layout(sizes.text_tokens, layout.grid, branch_speeds);
  int meshes = 0;
  Cost least;
  for (int ring = 1; ring <= branch_ranks; ++ring) {
    if (branch_ranks % ring != 0 || wanted.ring.value_or(ring) != ring) continue;
    const int ulysses = branch_ranks / ring;
    if (wanted.ulysses.value_or(ulysses) != ulysses) continue;
    DenoiseLayout candidate = layout;
    candidate.mesh = {*wanted.cfg, ring, ulysses};
    const Cost cost = cost_of(candidate, sizes, branch_speeds);
    if (meshes == 0 || cost.less_than(least)) {
      layout.mesh = candidate.mesh;
      least = cost;
    }
    ++meshes;
  }
  expect(meshes > 0, "{} ranks cannot be cfg {} x ring {} x ulysses {}", ranks, *wanted.cfg,
         wanted.ring.value_or(0), wanted.ulysses.value_or(0));
  layout.why = fmt::format(
      "{}{}: {}",
      !request.cfg && *wanted.cfg == 2                      ? "cfg takes the first factor of 2, "
      : request.cfg.value_or(1) == 2 && sizes.branches == 1 ? "one branch leaves cfg to the ring, "
                                                            : "",
      meshes > 1 ? fmt::format("the cheapest of {}", meshes) : "the only one", to_string(least));
  return layout;
}

Layout token_layout(Shard shard, const Shape& grid, int ranks, const std::vector<double>& speeds) {
  if (shard == Shard::height) return Layout::grid(grid, {1, ranks, 1}, speeds);
  if (shard == Shard::frames) return Layout::grid(grid, {ranks, 1, 1}, speeds);
  // Candidates, the preferred first: rows alone, then grids with few parts in time.
  Layout best = Layout::grid(grid, {1, ranks, 1}, speeds);
  bool found = shard == Shard::automatic;
  const auto consider = [&](const Layout& candidate) {
    if (!found || more_even(candidate, best, speeds)) best = candidate;
    found = true;
  };
  for (int frames = 1; frames <= ranks; ++frames) {
    if (ranks % frames != 0) continue;
    for (int columns = 1; columns <= ranks / frames; ++columns) {
      if (ranks / frames % columns != 0) continue;
      const int rows = ranks / frames / columns;
      const bool is_grid = (frames > 1) + (rows > 1) + (columns > 1) >= 2;
      if (shard == Shard::grid && !is_grid) continue;
      consider(Layout::grid(grid, {frames, rows, columns}, speeds));
    }
  }
  if (shard == Shard::automatic) {
    consider(bisected(grid, ranks));
    const bool unlike =
        std::adjacent_find(speeds.begin(), speeds.end(), std::not_equal_to<>()) != speeds.end();
    if (unlike) consider(bisected_by_speed(grid, speeds));
  }
  return best;  // a prime number of ranks has no grid: rows are cut
}

Layout text_layout(std::int64_t tokens, const Layout& grid, const std::vector<double>& speeds) {
  std::vector<std::int64_t> share(static_cast<std::size_t>(grid.ranks()), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto done = [&](int rank) {  // with one more
      const std::int64_t all = grid.box(rank).numel() + share[static_cast<std::size_t>(rank)] + 1;
      return static_cast<double>(all) / speed_of(speeds, rank);
    };
    int first = 0;
    for (int rank = 1; rank < grid.ranks(); ++rank) {
      if (done(rank) < done(first)) first = rank;
    }
    ++share[static_cast<std::size_t>(first)];
  }
  std::vector<Box> boxes;
  std::int64_t first = 0;
  for (const std::int64_t count : share) {
    boxes.push_back({{first}, {count}});
    first += count;
  }
  return {{tokens}, std::move(boxes)};
}

}  // namespace reelmesh
