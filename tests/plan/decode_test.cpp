#include "plan/decode.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace reelmesh {
namespace {

// Groups of `size` latent frames, each decoded to `size` frames of video; 1: single images.
DecodeWorkload grouped_workload(const Shape& frames_rows_columns, std::int64_t size) {
  DecodeWorkload workload;
  workload.latents = frames_rows_columns;
  workload.frames = frames_rows_columns[0];
  workload.group_latents = workload.group_frames = size;
  return workload;
}

Layout latent_layout(const Shape& latents, std::int64_t size, int ranks,
                     const RankWeights& weights = {}) {
  return decode_layout(grouped_workload(latents, size), ranks, weights).latents;
}

// The number of parts that the layout has: {along frames, along rows}. Without empty ones.
std::pair<int, int> cut(std::int64_t images, std::int64_t rows, int ranks,
                        const RankWeights& weights = {}) {
  const Layout layout = latent_layout({images, rows, 1}, 1, ranks, weights);
  int first_frame = 0, used = 0;
  for (int r = 0; r < ranks; ++r) {
    used += layout.box(r).empty() ? 0 : 1;
    first_frame += !layout.box(r).empty() && layout.box(r).offset[0] == 0 ? 1 : 0;
  }
  return {used / first_frame, first_frame};
}

TEST(DecodeGroups, AreDividedFirstAndTheirRowsWhereThatEndsEarlier) {
  EXPECT_EQ(cut(16, 32, 1), (std::pair{1, 1}));
  EXPECT_EQ(cut(16, 32, 4), (std::pair{4, 1}));
  EXPECT_EQ(cut(16, 32, 3), (std::pair{3, 1}));  // 6 images of 32 rows, not 16 of 12
  EXPECT_EQ(cut(16, 32, 64), (std::pair{16, 4}));
  EXPECT_EQ(cut(3, 30, 4), (std::pair{1, 4}));  // 3 images of 9 rows, not 1 of 30
}

TEST(DecodeGroups, FollowTheWeightsOfRanks) {
  EXPECT_EQ(cut(16, 32, 4, {1, 1, 1, 1}), (std::pair{4, 1}));
  EXPECT_EQ(cut(16, 32, 2, {1, 3}), (std::pair{2, 1}));
  EXPECT_EQ(cut(3, 30, 4, {2, 2, 2, 1}), (std::pair{3, 1}));  // the slow fourth rank is left idle
  const Layout frames = latent_layout({16, 7, 5}, 1, 4, {1, 1, 2, 4});
  EXPECT_EQ(frames.box(0), (Box{{0, 0, 0}, {2, 7, 5}}));
  EXPECT_EQ(frames.box(3), (Box{{8, 0, 0}, {8, 7, 5}}));
  // 26 frames in groups of 17: two groups, none for the slow rank.
  const Layout idle = latent_layout({26, 6, 4}, 17, 3, {1, 50, 50});
  EXPECT_TRUE(idle.box(0).empty());
  EXPECT_EQ(idle.box(1), (Box{{0, 0, 0}, {17, 6, 4}}));
  EXPECT_EQ(idle.box(2), (Box{{17, 0, 0}, {9, 6, 4}}));
}

// For random sizes and weights. Equal weights give the layout that no weights give.
TEST(DecodeGroups, ArePartitionedForAnyWeights) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const int ranks = int(random() % 9 + 1);
    RankWeights weights;
    for (int r = 0; r < ranks; ++r) weights.push_back(std::pow(2.0, double(random() % 8)));
    const Shape shape{std::int64_t(random() % 40 + 1), std::int64_t(random() % 12 + 1), 3};
    const auto size = std::int64_t(random() % 6 + 1);
    const Layout layout = latent_layout(shape, size, ranks, weights);
    EXPECT_TRUE(layout.is_partition()) << to_string(layout);
    const Layout equal = latent_layout(shape, 2, ranks, RankWeights(weights.size(), 7.0));
    EXPECT_EQ(equal, latent_layout(shape, 2, ranks)) << to_string(equal);
  }
}

TEST(DecodeGroups, AreWholeAndTheLastMayBeShort) {
  // 26 frames in groups of 17 on 4 ranks: 2 groups, each cut by rows.
  const Layout layout = latent_layout({26, 6, 4}, 17, 4);
  EXPECT_TRUE(layout.is_partition());
  EXPECT_EQ(layout.box(1), (Box{{0, 3, 0}, {17, 3, 4}}));
  EXPECT_EQ(layout.box(2), (Box{{17, 0, 0}, {9, 3, 4}}));
  const Layout two = latent_layout({26, 6, 4}, 17, 2);
  EXPECT_EQ(two.box(0), (Box{{0, 0, 0}, {17, 6, 4}}));
  EXPECT_EQ(two.box(1), (Box{{17, 0, 0}, {9, 6, 4}}));
}

TEST(DecodeGroups, ThatASecondAutoencoderDecodesFrameByFrame) {
  // Open-Sora 1.2: 51 frames; each group of 5 latent frames becomes 17 frames.
  DecodeWorkload workload = grouped_workload({15, 30, 53}, 5);
  workload.frames = 51;
  workload.group_frames = 17;
  workload.single_images = true;
  const DecodeLayout layout = decode_layout(workload, 3);
  EXPECT_EQ(layout.latents, Layout::cut({15, 30, 53}, 0, 3));
  EXPECT_EQ(layout.frames, Layout::cut({51, 30, 53}, 0, 3));
  EXPECT_EQ(layout.images, Layout::cut({51, 30, 53}, 0, 3));
  const DecodeLayout more = decode_layout(workload, 6);
  EXPECT_EQ(more.latents, Layout::grid({15, 30, 53}, {3, 2, 1}));
  EXPECT_EQ(more.frames, Layout::grid({51, 30, 53}, {3, 2, 1}));
  EXPECT_TRUE(more.images.is_partition());
  EXPECT_NE(more.images, more.frames) << "single images are divided further";
}

// CogVideoX decodes all frames as one group. 480 x 720: 60 x 90 latents.
Layout rectangles(std::int64_t rows, std::int64_t columns, int ranks,
                  const RankWeights& weights = {}) {
  return latent_layout({13, rows, columns}, 13, ranks, weights);
}

Layout cut_into(std::int64_t rows, std::int64_t columns, int split_rows, int column_parts) {
  return Layout::grid({13, rows, columns}, {1, split_rows, column_parts});
}

TEST(DecodeRectangles, CutRowsAndThenColumns) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 10, 12, 15, 16, 20, 30, 60}) {
    EXPECT_EQ(rectangles(60, 90, ranks), cut_into(60, 90, ranks, 1)) << ranks;
  }
  EXPECT_EQ(rectangles(60, 90, 8), cut_into(60, 90, 4, 2)) << "8 rows at most, or 15/2";
  EXPECT_EQ(rectangles(60, 90, 40), cut_into(60, 90, 20, 2));
  EXPECT_EQ(rectangles(60, 90, 120), cut_into(60, 90, 60, 2));
  EXPECT_EQ(rectangles(60, 90, 128), cut_into(60, 90, 64, 2));
  EXPECT_EQ(rectangles(2, 90, 8), cut_into(2, 90, 2, 4));
  EXPECT_EQ(rectangles(1, 1, 8), cut_into(1, 1, 8, 1));
  for (int ranks = 1; ranks <= 200; ++ranks) {
    const Layout layout = rectangles(60, 90, ranks);
    EXPECT_TRUE(layout.is_partition()) << ranks;
    EXPECT_EQ(layout.ranks(), ranks);
  }
}

TEST(DecodeRectangles, FollowTheWeights) {
  const Layout layout = rectangles(60, 90, 3, {1, 1, 4});
  EXPECT_EQ(layout.box(0), (Box{{0, 0, 0}, {13, 10, 90}}));
  EXPECT_EQ(layout.box(2), (Box{{0, 20, 0}, {13, 40, 90}}));
}

TEST(DecodeRectangles, AreTheSameInTheVideo) {
  DecodeWorkload workload = grouped_workload({13, 60, 90}, 13);
  workload.frames = workload.group_frames = 49;
  const DecodeLayout layout = decode_layout(workload, 4);
  EXPECT_EQ(layout.latents, Layout::cut({13, 60, 90}, 1, 4));
  EXPECT_EQ(layout.frames, Layout::cut({49, 60, 90}, 1, 4));
  EXPECT_EQ(layout.images, layout.frames);
}

}  // namespace
}  // namespace reelmesh
