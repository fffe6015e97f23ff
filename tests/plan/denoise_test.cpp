#include "plan/denoise.hpp"

#include <gtest/gtest.h>

#include "plan/bisect.hpp"
#include "plan/tokens.hpp"
#include "plan/workloads.hpp"

namespace reelmesh {
namespace {

using test::cogvideox_2b;

const std::vector<int> rank_counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32};

struct Extremes {
  std::int64_t largest = 0, smallest = 0;
  double ratio() const { return double(largest) / double(smallest); }
};
Extremes extremes(const Layout& layout) {
  Extremes found{0, numel(layout.global())};
  for (int r = 0; r < layout.ranks(); ++r) {
    found.largest = std::max(found.largest, layout.box(r).numel());
    found.smallest = std::min(found.smallest, layout.box(r).numel());
  }
  return found;
}

TEST(TokenLayout, EveryRankCountFrom1To64HasAPartition) {
  const Shape grid{13, 30, 45};
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (const Shard shard : {Shard::automatic, Shard::height, Shard::frames, Shard::grid}) {
      const Layout layout = token_layout(shard, grid, ranks);
      EXPECT_EQ(layout.ranks(), ranks);
      EXPECT_TRUE(layout.is_partition()) << ranks;
    }
    const std::int64_t automatic = extremes(token_layout(Shard::automatic, grid, ranks)).largest;
    for (const Shard shard : {Shard::height, Shard::frames, Shard::grid}) {
      EXPECT_LE(automatic, extremes(token_layout(shard, grid, ranks)).largest) << ranks;
    }
  }
  EXPECT_EQ(token_layout(Shard::automatic, grid, 6), Layout::cut(grid, 1, 6));
  EXPECT_EQ(token_layout(Shard::frames, grid, 5), Layout::cut(grid, 0, 5));
  EXPECT_EQ(token_layout(Shard::grid, grid, 7), Layout::cut(grid, 1, 7)) << "7 has no grid";
}

TEST(TokenLayout, IsEvenForAnyNumberOfRanks) {
  for (const int ranks : rank_counts) {
    EXPECT_LE(extremes(token_layout(Shard::automatic, {13, 30, 45}, ranks)).ratio(), 1.1) << ranks;
    EXPECT_LE(extremes(token_layout(Shard::automatic, {11, 48, 85}, ranks)).ratio(), 1.1) << ranks;
  }
  for (const int ranks : {48, 64, 100, 128}) {
    EXPECT_LE(extremes(token_layout(Shard::automatic, {13, 30, 45}, ranks)).ratio(), 1.25) << ranks;
  }
}

TEST(TokenLayout, FollowsTheWeights) {
  const Shape grid{13, 30, 45};
  EXPECT_EQ(token_layout(Shard::height, grid, 3, {1, 1, 4}),
            Layout::grid(grid, {1, 3, 1}, {1, 1, 4}));
  for (int ranks = 1; ranks <= 32; ++ranks) {
    RankWeights weights;
    for (int r = 0; r < ranks; ++r) weights.push_back(r % 3 == 0 ? 1.0 : 2.5);
    const Layout layout = token_layout(Shard::automatic, grid, ranks, weights);
    EXPECT_TRUE(layout.is_partition()) << ranks;
    const Layout even = token_layout(Shard::automatic, grid, ranks);
    EXPECT_LE(makespan(layout, weights), makespan(even, weights)) << ranks;
    EXPECT_EQ(token_layout(Shard::automatic, grid, ranks, RankWeights(weights.size(), 2.0)), even);
  }
}

TEST(Bisected, LeavesRanksEmptyOnlyWhereTokensEnd) {
  for (const Shape& grid : {Shape{1, 1, 1}, Shape{1, 2, 3}, Shape{3, 1, 5}, Shape{2, 7, 1}}) {
    for (int ranks = 1; ranks <= 20; ++ranks) {
      const Layout layout = bisected(grid, ranks);
      ASSERT_EQ(layout.ranks(), ranks);
      ASSERT_TRUE(layout.is_partition()) << to_string(layout);
      int busy = 0;
      for (int r = 0; r < ranks; ++r) busy += layout.box(r).empty() ? 0 : 1;
      EXPECT_EQ(busy, std::min<std::int64_t>(ranks, numel(grid))) << to_string(layout);
    }
  }
  EXPECT_TRUE(bisected({13, 30, 45}, 1000).is_partition());
}

TEST(TextLayout, FillsUpThoseThatHaveLess) {
  const Layout grid = Layout::cut({1, 5, 4}, 1, 3);  // 8, 8, 4
  EXPECT_EQ(to_string(text_layout(3, grid)), "[3]: [] [] [0:3]");
  EXPECT_EQ(to_string(text_layout(10, grid)), "[10]: [0:2] [2:4] [4:10]");
  EXPECT_EQ(to_string(text_layout(1, Layout::cut({1, 2, 1}, 1, 4))), "[1]: [] [] [0:1] []");
}

ChosenLayout choose(const MeshRequest& request, int ranks, const DenoiseWorkload& workload,
                    const RankWeights& weights = {}, Shard shard = Shard::automatic) {
  return choose_layout(workload, {request, shard, ranks, weights});
}

TEST(JointLayout, WorkIsEvenFor480x720x49OnAnyNumberOfRanks) {
  for (const std::int64_t branches : {1, 2}) {
    const DenoiseWorkload workload = cogvideox_2b(branches);
    const double alone = estimated_step(workload, choose({}, 1, workload).chosen, 0).flops;
    for (const int ranks : rank_counts) {
      const ChosenLayout chosen = choose({}, ranks, workload);
      EXPECT_EQ(chosen.layout().mesh.ranks(), ranks);
      EXPECT_EQ(chosen.layout().mesh.cfg, branches == 2 && ranks % 2 == 0 ? 2 : 1);
      double max = 0, min = 1e300, all = 0;
      for (int r = 0; r < ranks; ++r) {
        const double flops = estimated_step(workload, chosen.chosen, r).flops;
        max = std::max(max, flops);
        min = std::min(min, flops);
        all += flops;
      }
      EXPECT_LE(max / min, 1.1) << ranks << " ranks: " << chosen.why;
      EXPECT_NEAR(all / alone, 1, 1e-12) << "all ranks together do what one does alone";
    }
  }
}

TEST(JointLayout, WorkFollowsTheWeights) {
  const DenoiseWorkload workload = cogvideox_2b();
  // Both CFG halves have the same boxes: the smaller weight of each pair of ranks counts.
  const RankWeights weights{1, 2, 1, 3, 1, 4, 1, 2}, smaller{1, 2, 1, 2};
  const LayoutCandidate chosen = choose({}, 8, workload, weights).chosen;
  EXPECT_EQ(chosen.layout.mesh, (Mesh{2, 4, 1})) << "even heads would not be even work";
  double max = 0, min = 1e300;
  for (int r = 0; r < 4; ++r) {
    const double time = estimated_step(workload, chosen, r).flops / smaller[std::size_t(r)];
    max = std::max(max, time);
    min = std::min(min, time);
  }
  EXPECT_LE(max / min, 1.1);
  EXPECT_EQ(choose({}, 7, workload, RankWeights(7, 3)).layout().tokens,
            choose({}, 7, workload).layout().tokens);
  EXPECT_TRUE(bisected_by_weight({1, 2, 1}, {1, 2, 3, 4}).is_partition());
  EXPECT_EQ(to_string(bisected_by_weight({1, 6, 1}, {1, 1, 4})),
            "[1, 6, 1]: [0:1, 0:1, 0:1] [0:1, 1:2, 0:1] [0:1, 2:6, 0:1]");
}

// Bytes that a rank sends in a step, from its boxes: queries, keys, values and results to the ranks
// of its Ulysses group, keys and values of that group to a rank of each other group of its branch;
// with cfg 2 also the prediction.
std::int64_t bytes_by_boxes(const DenoiseLayout& layout, const DenoiseWorkload& w, int rank) {
  const Mesh& mesh = layout.mesh;
  const std::int64_t channels = w.head_channels * w.branches / mesh.cfg;
  const auto tokens = [&](int r) {
    return layout.tokens.box(r).numel() + layout.text.box(r).numel();
  };
  const auto heads = [&](int r) {
    const int column = r % mesh.ulysses;
    return w.heads / mesh.ulysses + (column < w.heads % mesh.ulysses ? 1 : 0);
  };
  const int me = rank % mesh.branch_ranks();
  std::int64_t elements = 0;
  for (int other = 0; other < mesh.branch_ranks(); ++other) {
    if (other == me || other / mesh.ulysses != me / mesh.ulysses) continue;
    elements += 3 * tokens(me) * heads(other) + tokens(other) * heads(me);
  }
  const auto row_tokens = [&](int row) {
    std::int64_t sum = 0;
    for (int i = 0; i < mesh.ulysses; ++i) sum += tokens(row * mesh.ulysses + i);
    return sum;
  };
  const int mine = me / mesh.ulysses;
  for (int row = 0; row < mesh.ring; ++row) {
    if (row != mine && row_tokens(row) > 0) elements += 2 * row_tokens(mine) * heads(me);
  }
  const std::int64_t prediction = mesh.cfg == 2 ? 4 * 64 * layout.tokens.box(me).numel() : 0;
  return w.layers * elements * channels * w.element_bytes + prediction;
}

TEST(JointLayout, BytesAreThoseOfTheBoxes) {
  for (const std::int64_t branches : {1, 2}) {
    const DenoiseWorkload workload = cogvideox_2b(branches);
    for (const int ranks : rank_counts) {
      const ChosenLayout chosen = choose({}, ranks, workload);
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(estimated_step(workload, chosen.chosen, r).sent_bytes,
                  bytes_by_boxes(chosen.layout(), workload, r))
            << to_string(chosen.layout().mesh) << " rank " << r;
      }
    }
  }
}

TEST(JointLayout, BytesOfEvenBoxesAreThoseOfTheFormula) {
  // 16 x 30 x 40 tokens and 30 heads of 64 channels, without text: S = 19200, D = 1920.
  DenoiseWorkload workload = cogvideox_2b(1);
  workload.latents = {16, 60, 80};
  workload.text_tokens = 0;
  workload.layers = 1;
  constexpr std::int64_t all = std::int64_t{19200} * 1920 * 2;
  for (const int ranks : {2, 3, 5, 6, 10}) {
    const auto bytes = [&](const MeshRequest& request) {
      const ChosenLayout chosen = choose(request, ranks, workload, {}, Shard::height);
      return estimated_step(workload, chosen.chosen, ranks - 1).sent_bytes;
    };
    EXPECT_EQ(bytes({1, ranks, 1}), 4 * all / ranks * (ranks - 1) / ranks) << "Ulysses";
    EXPECT_EQ(bytes({1, 1, ranks}), 2 * all * (ranks - 1) / ranks) << "ring";
  }
}

TEST(JointLayout, TakesWhatIsAskedAndChoosesTheRest) {
  const auto mesh = [&](const MeshRequest& request, int ranks, std::int64_t branches = 2) {
    return choose(request, ranks, cogvideox_2b(branches)).layout().mesh;
  };
  EXPECT_EQ(mesh({}, 1), (Mesh{1, 1, 1}));
  EXPECT_EQ(mesh({}, 2), (Mesh{2, 1, 1}));
  EXPECT_EQ(mesh({}, 4), (Mesh{2, 1, 2}));
  EXPECT_EQ(mesh({}, 6), (Mesh{2, 1, 3}));
  EXPECT_EQ(mesh({}, 7), (Mesh{1, 7, 1})) << "30 heads on 7 ranks are less even than tokens";
  EXPECT_EQ(mesh({1, {}, {}}, 6), (Mesh{1, 1, 6}));
  EXPECT_EQ(mesh({{}, 3, {}}, 6), (Mesh{2, 1, 3}));
  EXPECT_EQ(mesh({{}, {}, 3}, 12), (Mesh{2, 3, 2}));
  EXPECT_EQ(mesh({2, 2, 3}, 12), (Mesh{2, 3, 2}));
  // A clip with one branch cannot use CFG parallelism.
  EXPECT_EQ(mesh({2, 2, 3}, 12, 1), (Mesh{1, 6, 2}));
  EXPECT_EQ(mesh({2, 3, {}}, 6, 1), (Mesh{1, 2, 3}));
  EXPECT_EQ(mesh({}, 6, 1), (Mesh{1, 1, 6}));
}

TEST(JointLayout, LatentsAreThoseOfTheTokens) {
  const LayoutCandidate chosen = choose({}, 6, cogvideox_2b()).chosen;
  const DenoiseLayout& layout = chosen.layout;
  EXPECT_EQ(layout.latents, Layout::cut({13, 30, 45}, 1, 3).scaled(1, 2).scaled(2, 2));
  EXPECT_EQ(layout.text.ranks(), 3);
  ASSERT_TRUE(chosen.attention.has_value());
  EXPECT_EQ(chosen.attention->all_tokens(), 13 * 30 * 45 + 226);
}

TEST(JointLayout, SaysWhy) {
  const auto why = [&](const MeshRequest& request, int ranks, std::int64_t branches) {
    return choose(request, ranks, cogvideox_2b(branches)).why;
  };
  EXPECT_EQ(why({}, 4, 2),
            "cfg 2 because the number of ranks is even; lowest cost of 2 meshes; max/min work of a "
            "rank 1.00, at most 1.91 GiB sent by a rank in a step");
  EXPECT_EQ(why({2, 2, 1}, 4, 1)
                .find("guidance has one branch, so the ranks of cfg join the ring; the only mesh "
                      "possible; "),
            0U);
  EXPECT_EQ(why({1, 1, 1}, 1, 2).find("the only mesh possible; "), 0U);
  DenoiseWorkload small = cogvideox_2b(1);
  small.latents = {1, 2, 2};
  small.text_tokens = small.heads = 1;
  EXPECT_NE(choose({}, 5, small).why.find("some ranks have no work"), std::string::npos);
}

// Layouts for thousands of ranks are found and are partitions; the largest box is within a bound.
TEST(JointLayout, ThousandsOfRanks) {
  const DenoiseWorkload workload = cogvideox_2b();
  for (const int ranks : {1024, 4096, 4099}) {
    const DenoiseLayout layout = choose({}, ranks, workload).layout();
    EXPECT_EQ(layout.mesh.ranks(), ranks);
    EXPECT_TRUE(layout.tokens.is_partition());
    EXPECT_TRUE(layout.text.is_partition());
    EXPECT_LE(extremes(layout.tokens).largest, ranks == 1024 ? 40 : 14) << ranks;
  }
}

}  // namespace
}  // namespace reelmesh
