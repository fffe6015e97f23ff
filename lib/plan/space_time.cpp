#include "plan/space_time.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "plan/speeds.hpp"

namespace reelmesh {
SpaceTime space_time_layout(Shard shard, const Shape& tokens, int ranks,
                            const std::vector<double>& speeds) {
  if (shard == Shard::height) return {tokens, 1, ranks, speeds};
  const SpaceTime by_frames(tokens, ranks, 1, speeds);
  if (shard == Shard::frames || (shard == Shard::automatic && ranks <= tokens[0])) return by_frames;
  SpaceTime best = by_frames;
  bool found = shard == Shard::automatic;
  for (int rows = 2; rows <= ranks; ++rows) {
    if (ranks % rows != 0 || (shard == Shard::grid && rows == ranks)) continue;
    const SpaceTime grid(tokens, ranks / rows, rows, speeds);
    if (!found || longest(grid.frames, speeds) < longest(best.frames, speeds)) best = grid;
    found = true;
  }
  return best;  // a prime number of ranks has no grid: frames are cut
}

std::int64_t NamedMove::sent_bytes(int rank, const SpaceTimeSizes& sizes) const {
  const Box& held = move.from.box(rank);
  const std::int64_t kept = intersect(held, move.to.box(rank)).numel();
  return (held.numel() - kept) * values * sizes.element_bytes;
}

std::vector<NamedMove> relayouts(const SpaceTime& layouts, const SpaceTimeSizes& sizes) {
  std::vector<NamedMove> moves;
  if (!layouts.frames_are_whole()) {
    const Layout tokens = layouts.frames_with_heads(sizes.heads);
    const Layout heads = layouts.heads(sizes.heads);
    const std::int64_t values = sizes.branches * sizes.channels / sizes.heads;
    moves.push_back({"rows -> heads", {tokens, heads}, 3 * values});
    moves.push_back({"heads -> rows", {heads, tokens}, values});
  }
  const std::int64_t values = sizes.branches * sizes.channels;
  moves.push_back({"frames -> places", {layouts.frames, layouts.places}, values});
  moves.push_back({"places -> frames", {layouts.places, layouts.frames}, values});
  return moves;
}

std::string describe(const Plan& plan, const SpaceTime& layouts, const SpaceTimeSizes& sizes) {
  std::string text = describe(plan);
  text += fmt::format("tokens for spatial attention [frame, row, column] {}\n",
                      to_string(layouts.grid));
  text +=
      fmt::format("tokens for temporal attention [frame, place] {}\n", to_string(layouts.places));
  if (layouts.grid.ranks() == 1) return text;
  for (const NamedMove& move : relayouts(layouts, sizes)) {
    std::int64_t most = 0;
    for (int r = 0; r < layouts.grid.ranks(); ++r) {
      most = std::max(most, move.sent_bytes(r, sizes));
    }
    text += fmt::format("{}: {} times a step, at most {} from a rank each time\n", move.name,
                        sizes.layers, format_bytes(static_cast<double>(most)));
  }
  return text;
}

}  // namespace reelmesh
