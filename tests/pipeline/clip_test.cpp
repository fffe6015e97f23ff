#include "pipeline/clip.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "support/expect_error.hpp"

namespace reelmesh::pipeline {
namespace {

using testing::ElementsAre;

Clip clip(int index) {
  Clip clip;
  clip.record.index = index;
  clip.record.prompt = std::to_string(index);
  clip.record.seed = std::uint64_t(index);
  clip.record.steps = 4;
  clip.record.guidance = 7;
  clip.record.fps = 8;
  clip.format = {{64, 96, 16}, 2};
  return clip;
}

std::vector<std::vector<int>> indices(const std::vector<Batch>& batches) {
  std::vector<std::vector<int>> all;
  for (const Batch& batch : batches) {
    all.emplace_back();
    for (const Clip& one : batch) all.back().push_back(one.index());
  }
  return all;
}

TEST(Batches, HaveAtMostSoManyClips) {
  std::vector<Clip> clips;
  for (int i = 0; i < 5; ++i) clips.push_back(clip(i));
  EXPECT_THAT(
      indices(batches_of(clips, 1)),
      ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
  EXPECT_THAT(indices(batches_of(clips, 3)), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(indices(batches_of(clips, 9)), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  EXPECT_EQ(steps_of(batches_of(clips, 9).front()), 20);
  EXPECT_TRUE(batches_of({}, 3).empty());
}

TEST(Batches, HaveClipsOfOneSize) {
  std::vector<Clip> clips(8, clip(0));
  clips[1].format.size.height = 128;
  clips[2].format.size.width = 128;
  clips[3].format.size.frames = 17;
  clips[4].record.fps = 24;
  clips[5].record.steps = 5;
  clips[6].record.guidance = 6;
  clips[7].format.branches = 1;
  EXPECT_EQ(batches_of(clips, 9).size(), clips.size());
}

TEST(Batches, TakeClipsFromBehindOthers) {
  std::vector<Clip> clips;
  for (int i = 0; i < 6; ++i) {
    clips.push_back(clip(i));
    if (i % 2 == 1) clips.back().format.size.frames = 5;
  }
  EXPECT_THAT(indices(batches_of(clips, 2)),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4), ElementsAre(5)));
}

TEST(RequestedClip, RefusesSeedsThatOverflow) {
  Job job;
  job.seed = std::numeric_limits<std::uint64_t>::max() - 1;
  EXPECT_EQ(requested_clip(job, {}, 1, {}).record.seed, std::numeric_limits<std::uint64_t>::max());
  test::expect_error(
      Status::usage, [&] { requested_clip(job, {}, 2, {}); },
      "sample.seed: 18446744073709551614 + 2 for clip 2 exceeds 64 bits");
}

}  // namespace
}  // namespace reelmesh::pipeline
