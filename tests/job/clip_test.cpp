#include "job/clip.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "sampler/cogvideox.hpp"
#include "support/expect_error.hpp"
#include "support/released_scheduler.hpp"

namespace reelmesh {
namespace {

using testing::ElementsAre;

Clip clip(int index) {
  Clip clip;
  clip.record.index = index;
  clip.record.prompt = std::to_string(index);
  clip.record.settings.seed = std::uint64_t(index);
  clip.record.settings.steps = 4;
  clip.record.settings.guidance = 7;
  clip.record.settings.fps = 8;
  clip.format = {{64, 96, 16}, 2};
  clip.sampling.sampler =
      std::make_shared<const DdimSampler>(NoiseSchedule(released_scheduler(), clip.steps()));
  return clip;
}

ClipList clip_list(const std::vector<Clip>& clips) {
  ClipList list;
  for (const Clip& one : clips) {
    list.clips.push_back({.index = one.index(), .kind = list.kinds.add(one)});
  }
  return list;
}

std::vector<std::vector<int>> indices(const std::vector<Clip>& clips, int max_clips) {
  std::vector<std::vector<int>> all;
  const ClipList list = clip_list(clips);
  for (const BatchOutline& batch : form_batches(list.clips, list.kinds, max_clips)) {
    all.emplace_back();
    for (const ClipOutline& one : batch) all.back().push_back(one.index);
  }
  return all;
}

TEST(Batches, HaveAtMostSoManyClips) {
  std::vector<Clip> clips;
  for (int i = 0; i < 5; ++i) clips.push_back(clip(i));
  EXPECT_THAT(indices(clips, 1), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2),
                                             ElementsAre(3), ElementsAre(4)));
  EXPECT_THAT(indices(clips, 3), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(indices(clips, 9), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  const ClipList list = clip_list(clips);
  EXPECT_EQ(batch_steps(form_batches(list.clips, list.kinds, 9).front(), list.kinds), 20);
  EXPECT_TRUE(form_batches({}, list.kinds, 3).empty());
}

TEST(Batches, HaveClipsOfOneKindAndStep) {
  std::vector<Clip> clips(10, clip(0));
  clips[1].record.settings.height = 128;
  clips[2].record.settings.width = 128;
  clips[3].record.settings.frames = 17;
  clips[4].record.settings.fps = 24;
  clips[5].record.settings.steps = 5;
  clips[6].record.settings.guidance = 6;
  clips[7].format.branches = 1;
  clips[8].format.input = InputKind::image;
  clips[9].record.settings.strength = 0.5;
  ClipList list = clip_list(clips);
  EXPECT_EQ(list.kinds.size(), 10);
  EXPECT_EQ(form_batches(list.clips, list.kinds, 9).size(), clips.size());
  list = clip_list({clip(0), clip(1), clip(2)});
  list.clips[1].saved_step = 2;
  const std::vector<BatchOutline> batches = form_batches(list.clips, list.kinds, 9);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].size(), 2U);
  EXPECT_EQ(batch_steps(batches[1], list.kinds), 2);
}

TEST(Batches, OfClipsThatDecideTheirStepsHaveOneClip) {
  std::vector<Clip> clips;
  for (int i = 0; i < 4; ++i) {
    clips.push_back(clip(i));
    if (i % 2 == 0) continue;
    clips.back().record.settings.guidance = 3;
    clips.back().sampling.decides.emplace();
  }
  EXPECT_THAT(indices(clips, 3), ElementsAre(ElementsAre(0, 2), ElementsAre(1), ElementsAre(3)));
}

TEST(Batches, TakeClipsFromBehindOthers) {
  std::vector<Clip> clips;
  for (int i = 0; i < 6; ++i) {
    clips.push_back(clip(i));
    if (i % 2 == 1) clips.back().record.settings.frames = 5;
  }
  EXPECT_THAT(indices(clips, 2),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4), ElementsAre(5)));
}

// Would take hours if the time were quadratic.
TEST(Batches, OfAMillionClips) {
  ClipList list;
  constexpr int count = 1'000'000;
  for (const int steps : {4, 5, 6}) {
    Clip kind = clip(0);
    kind.record.settings.steps = steps;
    list.kinds.add(kind);
  }
  for (int i = 0; i < count; ++i) list.clips.push_back({.index = i, .kind = i % 3});
  EXPECT_EQ(form_batches(list.clips, list.kinds, 1).size(), count);
  EXPECT_EQ(form_batches(list.clips, list.kinds, 4).size(), 3 * 83334);
}

const ClipDefaults defaults{.size = {480, 720, 49}, .fps = 8, .steps = 50, .guidance = 6};
const Inputs inputs{
    {"cat.png", {.height = 300, .width = 400, .hash = "11"}},
    {"cat.mp4", {.frames = 30, .height = 300, .width = 400, .fps = 25, .hash = "22"}}};

TEST(RequestedClip, TakesFramesAndRateOfItsVideo) {
  Job job;
  job.video = "cat.mp4";
  const Clip clip = requested_clip(job, {}, 0, defaults, inputs);
  EXPECT_EQ(clip.format.input, InputKind::video);
  EXPECT_EQ(clip.format.size, (VideoSize{480, 720, 30}));
  EXPECT_EQ(clip.record.settings.fps, 25);
  EXPECT_EQ(clip.record.settings.strength, 0.8);
  EXPECT_EQ(clip.record.video, "cat.mp4");
  EXPECT_EQ(clip.record.input_hash, "22");
  EXPECT_EQ(clip.record.input_frames, 30);
  EXPECT_EQ(input_text(clip, inputs.at("cat.mp4")),
            "prompt.video: cat.mp4: 30 frames of 400 x 300 pixels (width x height), 25 frames per "
            "second; all of them used, resized to 720 x 480");

  job.sample.frames = 17;
  job.sample.fps = 12;
  job.sample.strength = 0.5;
  const Clip shorter = requested_clip(job, {}, 0, defaults, inputs);
  EXPECT_EQ(shorter.format.size.frames, 17);
  EXPECT_EQ(shorter.input->frames, 17);
  EXPECT_EQ(shorter.record.settings.fps, 12);
  EXPECT_EQ(shorter.record.settings.strength, 0.5);
  EXPECT_THAT(input_text(shorter, inputs.at("cat.mp4")),
              testing::HasSubstr("; the first 17 of them used"));
  job.sample.frames = 31;
  test::expect_error(
      Status::data, [&] { requested_clip(job, {}, 2, defaults, inputs); },
      "prompt.video: cat.mp4 has 30 frames, expected at least 31, as clip 2 is to have");
}

TEST(RequestedClip, HasItsUsualRateIfItsVideoHasNone) {
  Job job;
  job.video = "cat.gif";
  const Inputs without_rate{{"cat.gif", {.frames = 3, .height = 480, .width = 720}}};
  const Clip clip = requested_clip(job, {}, 0, defaults, without_rate);
  EXPECT_EQ(clip.record.settings.fps, 8);
  EXPECT_EQ(input_text(clip, without_rate.at("cat.gif")),
            "prompt.video: cat.gif: 3 frames of 720 x 480 pixels (width x height), without a "
            "usable rate; all of them used");
}

TEST(RequestedClip, PrefersTheFileOfItsLine) {
  Job job;
  job.video = "cat.mp4";
  ClipRequest request;
  request.where = "p.jsonl:3";
  request.image = "cat.png";
  const Clip clip = requested_clip(job, request, 0, defaults, inputs);
  EXPECT_EQ(clip.format.input, InputKind::image);
  EXPECT_EQ(clip.format.size.frames, 49);
  EXPECT_EQ(clip.record.image, "cat.png");
  EXPECT_EQ(clip.record.input_hash, "11");
  EXPECT_FALSE(clip.record.settings.strength || clip.record.input_frames);
  request.settings.strength = 0.5;
  test::expect_error(
      Status::usage, [&] { requested_clip(job, request, 0, defaults, inputs); },
      "p.jsonl:3: strength: found 0.5, expected it only with a video");
  request.video = "cat.mp4";
  test::expect_error(
      Status::usage, [&] { requested_clip(job, request, 0, defaults, inputs); },
      "p.jsonl:3: image: found 'cat.png', and the video 'cat.mp4', expected an image or a video");
}

TEST(RequestedClip, EndsWithAnImageIfItBeginsFromOne) {
  const Inputs images{{"cat.png", {.height = 300, .width = 400, .hash = "11"}},
                      {"dog.png", {.height = 30, .width = 40, .hash = "33"}},
                      {"cat.mp4", inputs.at("cat.mp4")}};
  Job job;
  job.image = "cat.png";
  job.last_image = "dog.png";
  const Clip clip = requested_clip(job, {}, 0, defaults, images);
  EXPECT_TRUE(clip.input->ends_with_image());
  EXPECT_EQ(clip.record.last_image, "dog.png");
  EXPECT_EQ(clip.record.last_image_hash, "33");
  ClipRequest request;
  request.where = "p.jsonl:3";
  request.last_image = "cat.png";
  EXPECT_EQ(requested_clip(job, request, 0, defaults, images).record.last_image_hash, "11");
  request.video = "cat.mp4";
  test::expect_error(
      Status::usage, [&] { requested_clip(job, request, 0, defaults, images); },
      "p.jsonl:3: last_image: found 'cat.png' for a clip that begins from no image, expected it "
      "only with prompt.image");
  job.image.clear();
  test::expect_error(
      Status::usage, [&] { requested_clip(job, {}, 0, defaults, images); },
      "prompt.last-image: found 'dog.png' for a clip that begins from no image");
}

TEST(RequestedClip, RefusesSeedsThatOverflow) {
  Job job;
  job.sample.seed = std::numeric_limits<std::uint64_t>::max() - 1;
  EXPECT_EQ(requested_clip(job, {}, 1, {}).record.settings.seed,
            std::numeric_limits<std::uint64_t>::max());
  test::expect_error(
      Status::usage, [&] { requested_clip(job, {}, 2, {}); },
      "sample.seed: 18446744073709551614 + 2 for clip 2 exceeds 64 bits");
}

}  // namespace
}  // namespace reelmesh
