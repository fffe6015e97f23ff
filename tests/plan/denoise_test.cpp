#include "plan/denoise.hpp"

#include <gtest/gtest.h>

#include "plan/bisect.hpp"
#include "plan/speeds.hpp"

namespace reelmesh {
namespace {

const std::vector<int> rank_counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32};

// 480 x 720 x 49 of CogVideoX-2b: 13 x 30 x 45 tokens and 30 heads, on which peers stop at rank
// counts that divide neither.
DenoiseSizes clip_2b(std::int64_t branches) {
  return {{13, 30, 45}, 226, branches, 30, 64, 30, 2, 64};
}

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

TEST(TokenLayout, FollowsTheSpeeds) {
  const Shape grid{13, 30, 45};
  EXPECT_EQ(token_layout(Shard::height, grid, 3, {1, 1, 4}),
            Layout::grid(grid, {1, 3, 1}, {1, 1, 4}));
  for (int ranks = 1; ranks <= 32; ++ranks) {
    std::vector<double> speeds;
    for (int r = 0; r < ranks; ++r) speeds.push_back(r % 3 == 0 ? 1.0 : 2.5);
    const Layout layout = token_layout(Shard::automatic, grid, ranks, speeds);
    EXPECT_TRUE(layout.is_partition()) << ranks;
    const Layout even = token_layout(Shard::automatic, grid, ranks);
    EXPECT_LE(longest(layout, speeds), longest(even, speeds)) << ranks;
    EXPECT_EQ(token_layout(Shard::automatic, grid, ranks, std::vector<double>(speeds.size(), 2.0)),
              even);
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

TEST(DenoiseLayout, WorkIsEvenFor480x720x49OnAnyNumberOfRanks) {
  for (const std::int64_t branches : {1, 2}) {
    const DenoiseSizes sizes = clip_2b(branches);
    for (const int ranks : rank_counts) {
      const DenoiseLayout layout = denoise_layout({}, Shard::automatic, sizes, ranks);
      EXPECT_EQ(layout.mesh.ranks(), ranks);
      EXPECT_EQ(layout.mesh.cfg, branches == 2 && ranks % 2 == 0 ? 2 : 1);
      double most = 0, least = layout.step_flops(sizes, 0), all = 0;
      for (int r = 0; r < ranks; ++r) {
        most = std::max(most, layout.step_flops(sizes, r));
        least = std::min(least, layout.step_flops(sizes, r));
        all += layout.step_flops(sizes, r);
      }
      EXPECT_LE(most / least, 1.1) << ranks << " ranks: " << to_string(layout.mesh) << layout.why;
      // All ranks together do what one does alone.
      const double one = denoise_layout({}, Shard::automatic, sizes, 1).step_flops(sizes, 0);
      EXPECT_NEAR(all / one, 1, 1e-12);
    }
  }
}

TEST(DenoiseLayout, WorkFollowsTheSpeeds) {
  const DenoiseSizes sizes = clip_2b(2);
  // The halves have the same boxes: the slower rank of two counts.
  const std::vector<double> speeds{1, 2, 1, 3, 1, 4, 1, 2};
  const std::vector<double> slower{1, 2, 1, 2};
  const DenoiseLayout layout = denoise_layout({}, Shard::automatic, sizes, 8, speeds);
  EXPECT_EQ(layout.mesh, (Mesh{2, 4, 1})) << "even heads would not be even work";
  double most = 0, least = 1e300;
  for (int r = 0; r < 4; ++r) {
    const double time = layout.step_flops(sizes, r) / slower[std::size_t(r)];
    most = std::max(most, time);
    least = std::min(least, time);
  }
  EXPECT_LE(most / least, 1.1);
  EXPECT_EQ(denoise_layout({}, Shard::automatic, sizes, 7, std::vector<double>(7, 3)).grid,
            denoise_layout({}, Shard::automatic, sizes, 7).grid);
  EXPECT_TRUE(bisected_by_speed({1, 2, 1}, {1, 2, 3, 4}).is_partition());
  EXPECT_EQ(to_string(bisected_by_speed({1, 6, 1}, {1, 1, 4})),
            "[1, 6, 1]: [0:1, 0:1, 0:1] [0:1, 1:2, 0:1] [0:1, 2:6, 0:1]");
}

// What a rank sends, by its boxes: queries to those who share its row, keys and values to all who
// attend, results back.
std::int64_t bytes_by_boxes(const DenoiseLayout& layout, const DenoiseSizes& sizes, int rank) {
  const Mesh& mesh = layout.mesh;
  const std::int64_t channels = sizes.head_channels * sizes.branches / mesh.cfg;
  const auto tokens = [&](int r) {
    return layout.grid.box(r).numel() + layout.text.box(r).numel();
  };
  const auto heads = [&](int r) {
    const int column = r % mesh.ulysses;
    return sizes.heads / mesh.ulysses + (column < sizes.heads % mesh.ulysses ? 1 : 0);
  };
  const int me = rank % mesh.branch_ranks();
  std::int64_t elements = 0;
  for (int other = 0; other < mesh.branch_ranks(); ++other) {
    if (other == me) continue;
    elements += 2 * tokens(me) * heads(other);
    if (other / mesh.ulysses != me / mesh.ulysses) continue;
    elements += tokens(me) * heads(other) + tokens(other) * heads(me);
  }
  const std::int64_t prediction = mesh.cfg == 2 ? 4 * 64 * layout.grid.box(me).numel() : 0;
  return sizes.layers * elements * channels * sizes.element_bytes + prediction;
}

TEST(DenoiseLayout, BytesAreThoseOfTheBoxes) {
  for (const std::int64_t branches : {1, 2}) {
    const DenoiseSizes sizes = clip_2b(branches);
    for (const int ranks : rank_counts) {
      const DenoiseLayout layout = denoise_layout({}, Shard::automatic, sizes, ranks);
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(layout.step_bytes(sizes, r), bytes_by_boxes(layout, sizes, r))
            << to_string(layout.mesh) << " rank " << r;
      }
    }
  }
}

TEST(DenoiseLayout, BytesOfEvenBoxesAreThoseOfTheFormula) {
  // 16 x 30 x 40 tokens and 30 heads of 64 channels, without text: S = 19200, D = 1920.
  const DenoiseSizes sizes{{16, 30, 40}, 0, 1, 30, 64, 1, 2, 64};
  constexpr std::int64_t all = std::int64_t{19200} * 1920 * 2;
  for (const int ranks : {2, 3, 5, 6, 10}) {
    const auto bytes = [&](const MeshRequest& request) {
      return denoise_layout(request, Shard::height, sizes, ranks).step_bytes(sizes, ranks - 1);
    };
    EXPECT_EQ(bytes({1, ranks, 1}), 4 * all / ranks * (ranks - 1) / ranks) << "Ulysses";
    EXPECT_EQ(bytes({1, 1, ranks}), 2 * all * (ranks - 1) / ranks) << "ring";
  }
}

TEST(DenoiseLayout, TakesWhatIsAskedAndChoosesTheRest) {
  const DenoiseSizes sizes = clip_2b(2);
  const auto mesh = [&](const MeshRequest& request, int ranks, std::int64_t branches = 2) {
    return denoise_layout(request, Shard::automatic, clip_2b(branches), ranks).mesh;
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
  // A clip of one branch has no use for a second half.
  EXPECT_EQ(mesh({2, 2, 3}, 12, 1), (Mesh{1, 6, 2}));
  EXPECT_EQ(mesh({2, 3, {}}, 6, 1), (Mesh{1, 2, 3}));
  EXPECT_EQ(mesh({}, 6, 1), (Mesh{1, 1, 6}));
}

TEST(DenoiseLayout, SaysWhy) {
  const auto why = [&](const MeshRequest& request, int ranks, std::int64_t branches) {
    return denoise_layout(request, Shard::automatic, clip_2b(branches), ranks).why;
  };
  EXPECT_EQ(why({}, 4, 2),
            "cfg takes the first factor of 2, the cheapest of 2: the fullest rank has 1.00 times "
            "the work of the emptiest, a rank sends up to 1.91 GiB a step");
  EXPECT_EQ(why({2, 2, 1}, 4, 1).find("one branch leaves cfg to the ring, the only one: "), 0U);
  EXPECT_EQ(why({1, 1, 1}, 1, 2).find("the only one: "), 0U);
  const DenoiseSizes small{{1, 1, 1}, 1, 1, 1, 8, 1, 4, 64};
  EXPECT_NE(denoise_layout({}, Shard::automatic, small, 5).why.find("some ranks have no work"),
            std::string::npos);
}

TEST(GroupSize, IsAMultipleOfWhatIsGiven) {
  EXPECT_EQ(group_size({}, 7), 7);
  EXPECT_EQ(group_size({{}, 3, {}}, 7), 6);
  EXPECT_EQ(group_size({{}, 3, {}}, 2), 3);
  EXPECT_EQ(group_size({1, 3, 1}, 7), 3);
  EXPECT_EQ(group_size({2, {}, {}}, 7), 6);
}

}  // namespace
}  // namespace reelmesh
