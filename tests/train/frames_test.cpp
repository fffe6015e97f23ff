#include "train/frames.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "layout/relayout.hpp"
#include "media/image.hpp"
#include "media/ppm.hpp"
#include "support/expect_error.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using test::expect_error;
using testing::HasSubstr;
using Frames = std::vector<std::int64_t>;

InputFacts video(double fps, std::int64_t frames) {
  InputFacts facts;
  facts.fps = fps;
  facts.frames = frames;
  return facts;
}

TEST(ChosenFrames, AreTheFirstOnesWithoutARate) {
  EXPECT_EQ(chosen_frames(video(30, 5), std::nullopt, 4), (Frames{0, 1, 2, 3}));
  EXPECT_EQ(chosen_frames(video(0, 4), std::nullopt, 4), (Frames{0, 1, 2, 3}));
  EXPECT_EQ(chosen_frames(video(30, 3), std::nullopt, 4), Frames{});
  EXPECT_EQ(chosen_frames(video(0, 1), std::nullopt, 1), Frames{0});
}

// 15 frames 40 ms apart, then ten 200 ms apart, as of a phone in the dark; the mean is 9.6 fps.
TEST(ChosenFrames, AreThoseOfTheirTimesIfTheRateVaries) {
  InputFacts facts = video(9.6, 25);
  for (int i = 0; i < 25; ++i) facts.times.push_back(i < 15 ? 40 * i : 560 + 200 * (i - 14));
  // 0, 125, 250, 375, 500, 625, 750, 875, 1000 ms
  EXPECT_EQ(chosen_frames(facts, 8, 9), (Frames{0, 3, 6, 9, 13, 14, 15, 16, 16}));
  EXPECT_EQ(chosen_frames(facts, 8, 21).back(), 24);  // 2.5 s; the last frame is shown at 2.56 s
  EXPECT_EQ(chosen_frames(facts, 8, 22).back(), 24);  // 2.625 s
  EXPECT_EQ(chosen_frames(facts, 8, 23), Frames{});   // 2.75 s
  EXPECT_EQ(chosen_frames(facts, std::nullopt, 4), (Frames{0, 1, 2, 3}));
}

TEST(ChosenFrames, AreTheNearestInTime) {
  struct Case {
    double video_fps;
    std::int64_t video_frames;
    double fps;
    std::int64_t frames;
    Frames expected;
  };
  const double ntsc = 30000.0 / 1001;
  const std::vector<Case> cases = {
      {8, 4, 8, 4, {0, 1, 2, 3}},
      {8, 3, 8, 4, {}},
      {16, 7, 8, 4, {0, 2, 4, 6}},
      {16, 6, 8, 4, {}},
      {30, 12, 8, 4, {0, 4, 8, 11}},  // 0, 3.75, 7.5, 11.25
      {30, 11, 8, 4, {}},
      {ntsc, 12, 8, 4, {0, 4, 7, 11}},  // 7.49
      {8, 4, 16, 7, {0, 1, 1, 2, 2, 3, 3}},
      {8, 4, 16, 8, {}},  // 3.5
      {0, 100, 8, 2, {}},
      {0, 1, 8, 1, {0}},  // an image
      {1e300, 10'000, 1e-300, 2, {}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(chosen_frames(video(c.video_fps, c.video_frames), c.fps, c.frames), c.expected)
        << c.video_frames << " at " << c.video_fps << " to " << c.frames << " at " << c.fps;
  }
}

// Height, width and frames of the video and of the sizes.
TEST(ChosenBucket, HasTheMostFramesThenTheNearestRatioThenTheLargestSizeWithinTheVideo) {
  const std::vector<VideoSize> sizes{{480, 720, 49}, {720, 480, 49}, {240, 360, 49},
                                     {480, 720, 17}, {512, 512, 17}, {480, 720, 1}};
  struct Case {
    std::int64_t height, width, frames;
    std::optional<std::size_t> expected;
  };
  const std::vector<Case> cases = {
      {1080, 1620, 100, 0},                                          // both of its ratio fit
      {480, 720, 49, 0},    {479, 720, 49, 2},                       // would be enlarged
      {1080, 1920, 49, 0},  {1920, 1080, 49, 1}, {100, 150, 49, 2},  // none is within: the smallest
      {720, 720, 60, 0},  // of equal ratios and areas the first
      {480, 720, 48, 3},    {600, 640, 20, 4},   {480, 720, 16, 5}, {480, 720, 0, std::nullopt},
  };
  for (const Case& c : cases) {
    InputFacts facts;
    facts.height = c.height;
    facts.width = c.width;
    facts.frames = c.frames;
    facts.fps = 8;
    EXPECT_EQ(chosen_bucket(facts, std::nullopt, sizes), c.expected)
        << c.frames << " frames of " << c.height << " x " << c.width;
  }
  InputFacts facts;
  facts.height = 480;
  facts.width = 720;
  facts.frames = 96;
  facts.fps = 16;
  EXPECT_EQ(chosen_bucket(facts, 8, sizes), 3U);  // 96 frames at 16 are 48 at 8
}

DataSample media_sample(const std::string& name) {
  return {test::media_file(name), "a prompt", "clips.csv:2"};
}

UsableSample usable(const std::string& name) {
  const std::vector<UsableSample> found =
      check_data(test::world(), {media_sample(name)}, std::vector<VideoSize>{{8, 8, 1}}, {});
  return found.at(0);
}

/// Pillow-like resized images of `wanted` frames, cropped by a plain loop.
Tensor expected_frames(const std::string& name, const Frames& wanted, const VideoSize& size,
                       Shape resized, std::int64_t top, std::int64_t left) {
  const std::vector<Tensor> all = test::read_ppm(test::media_file(name));
  Tensor out = Tensor::empty({size.frames, size.height, size.width, 3}, DType::uint8);
  auto* to = out.data<std::uint8_t>();
  for (const std::int64_t frame : wanted) {
    const Tensor whole =
        media::resize_lanczos(all.at(static_cast<std::size_t>(frame)), resized[0], resized[1]);
    for (std::int64_t row = 0; row < size.height; ++row) {
      const auto* from =
          whole.data<std::uint8_t>() + ((row + top) * resized[1] + left) * std::int64_t{3};
      to = std::copy_n(from, 3 * size.width, to);
    }
  }
  return out;
}

void expect_equal(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  EXPECT_EQ(test::differences(found, expected), 0);
}

// upright.mp4: 4 frames of 24 rows and 32 columns at 8 fps; turned.jpg: 29 rows, 22 columns.
TEST(ReadFrames, CoverTheSizeAndAreCroppedInTheMiddle) {
  struct Case {
    std::string name;
    VideoSize size;
    std::optional<double> fps;
    Frames frames;
    Shape resized;
    std::int64_t top, left;
  };
  const std::vector<Case> cases = {
      {"upright.mp4", {24, 32, 4}, {}, {0, 1, 2, 3}, {24, 32}, 0, 0},
      {"upright.mp4", {24, 27, 2}, {}, {0, 1}, {24, 32}, 0, 2},
      {"upright.mp4", {12, 12, 2}, 4.0, {0, 2}, {12, 16}, 0, 2},
      {"upright.mp4", {10, 32, 3}, 16.0, {0, 1, 1}, {24, 32}, 7, 0},
      {"upright.mp4", {40, 64, 1}, 2.0, {0}, {48, 64}, 4, 0},  // larger
      {"upright.mp4", {16, 23, 1}, {}, {0}, {17, 23}, 0, 0},   // 17.25 rows
      {"turned.jpg", {16, 16, 1}, 8.0, {0}, {21, 16}, 2, 0},   // 21.09 rows
      {"turned.mp4", {32, 20, 1}, {}, {0}, {32, 24}, 0, 2},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} {} x {}", c.name, c.size.width, c.size.height));
    const Box whole = whole_box({c.size.frames, c.size.height, c.size.width, 3});
    expect_equal(read_frames(usable(c.name), c.size, c.fps, whole),
                 expected_frames(c.name, c.frames, c.size, c.resized, c.top, c.left));
  }
}

TEST(ReadFrames, GiveEachRankItsBox) {
  const VideoSize size{12, 15, 7};
  const UsableSample sample = usable("upright.mp4");
  const Tensor expected =
      expected_frames("upright.mp4", {0, 1, 1, 2, 2, 3, 3}, size, {12, 16}, 0, 0);
  const comm::Group& world = test::world();
  std::vector<Box> boxes{{{3, 2, 4, 0}, {3, 5, 6, 3}}, {{7, 0, 0, 0}, {0, 12, 15, 3}}};
  for (const std::size_t axis : {0U, 1U, 2U}) {
    boxes.push_back(Layout::cut(expected.shape(), axis, world.size()).box(world.rank()));
  }
  for (const Box& box : boxes) {
    Tensor part = Tensor::empty(box.extent, DType::uint8);
    copy_box(box, expected, whole_box(expected.shape()), part, box);
    expect_equal(read_frames(sample, size, 16.0, box), part);
  }
  expect_error(Status::internal, [&] {
    read_frames(sample, size, 16.0, {{1, 0, 0, 0}, {7, 12, 15, 3}});
  });
}

/// A folder of the first rank, on all ranks.
class CheckData : public testing::Test {
 protected:
  CheckData() : folder(world.broadcast(own.path().string(), 0)) {}
  ~CheckData() override { world.barrier(); }

  void write(const std::string& name, std::string_view bytes) const {
    if (world.rank() == 0) test::write_file(folder / name, bytes);
    world.barrier();
  }
  DataSample sample(const std::string& name, int line) const {
    return {folder / name, "a prompt", fmt::format("clips.csv:{}", line)};
  }
  std::vector<UsableSample> check(const std::vector<DataSample>& samples) const {
    return check_data(world, samples, sizes.empty() ? std::vector{size} : sizes, settings);
  }

  const comm::Group& world = test::world();
  test::TempFolder own;
  std::filesystem::path folder;
  VideoSize size{16, 16, 4};
  std::vector<VideoSize> sizes;  // in place of one
  DataSettings settings{.path = "clips.csv"};
};

TEST_F(CheckData, LeavesOutWhatCannotBeUsed) {
  write("broken.mp4", test::read_file(test::media_file("upright.mp4")).substr(0, 600));
  write("words.mp4", "no video");
  const std::vector<DataSample> samples = {sample("missing.mp4", 2),    media_sample("upright.mp4"),
                                           sample("broken.mp4", 4),     media_sample("palette.png"),
                                           sample("words.mp4", 6),      media_sample("odd.mkv"),
                                           media_sample("upright.mp4"), sample("words.mp4", 9)};
  testing::internal::CaptureStderr();
  const std::vector<UsableSample> found = check(samples);
  const std::string log = testing::internal::GetCapturedStderr();
  std::vector<std::int64_t> indices;
  for (const UsableSample& each : found) {
    indices.push_back(each.index);
    EXPECT_EQ(each.data.video, samples[static_cast<std::size_t>(each.index)].video);
    EXPECT_EQ(each.facts.frames, 4);
    EXPECT_EQ(each.facts.fps, 8);
    EXPECT_EQ(each.facts.hash.size(), 32U);
  }
  EXPECT_EQ(indices, (Frames{1, 5, 6}));
  EXPECT_EQ(found[0].facts.hash, found[2].facts.hash);
  EXPECT_NE(found[0].facts.hash, found[1].facts.hash);
  EXPECT_EQ(found[1].facts.width, 33);
  if (log::rank() != first_rank) {
    EXPECT_EQ(log, "");
    return;
  }
  EXPECT_EQ(std::ranges::count(log, '\n'), 5) << log;
  EXPECT_THAT(log, HasSubstr("clips.csv:2: " + (folder / "missing.mp4").string() +
                             ": cannot be opened: No such file"));
  EXPECT_THAT(log, HasSubstr("clips.csv:4: " + (folder / "broken.mp4").string() + ": "));
  EXPECT_THAT(log, HasSubstr("palette.png: is an image, expected a video of at least 4 frames; it "
                             "is left out"));
  EXPECT_THAT(log, HasSubstr("clips.csv:6: " + (folder / "words.mp4").string() + ": not a video"));
  EXPECT_THAT(log, HasSubstr("clips.csv:9: " + (folder / "words.mp4").string() + ": not a video"));
}

// The videos have 4 frames, the image is one.
TEST_F(CheckData, ChoosesASizeForEach) {
  sizes = {{16, 24, 4}, {24, 16, 4}, {16, 16, 1}, {16, 16, 9}};
  const std::vector<UsableSample> found =
      check({media_sample("upright.mp4"), media_sample("palette.png"), media_sample("odd.mkv")});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].bucket, found[0].facts.height > found[0].facts.width ? 1U : 0U);
  EXPECT_EQ(found[1].bucket, 2U);
  EXPECT_EQ(found[2].bucket, found[2].facts.height > found[2].facts.width ? 1U : 0U);
}

TEST_F(CheckData, OfSeveralSizesSaysTheFewestFramesThatAreExpected) {
  settings.strict = true;
  sizes = {{16, 16, 9}, {16, 16, 5}};
  const std::vector<DataSample> samples{media_sample("upright.mp4")};
  expect_error(
      Status::data, [&] { check(samples); }, "clips.csv:2",
      "upright.mp4: has 4 frames at 8 fps, expected at least 5");
}

TEST_F(CheckData, SaysHowManyFramesAreExpected) {
  settings.strict = true;
  size.frames = 5;
  const std::vector<DataSample> samples{media_sample("upright.mp4")};
  expect_error(
      Status::data, [&] { check(samples); },
      "clips.csv:2: ", "upright.mp4: has 4 frames at 8 fps, expected at least 5");
  size.frames = 4;
  EXPECT_EQ(check(samples).size(), 1U);
  settings.fps = 4;
  expect_error(
      Status::data, [&] { check(samples); },
      "upright.mp4: has 4 frames at 8 fps, expected at least 7 for 4 at 4 fps");
  settings.fps = 9;
  EXPECT_EQ(check(samples).size(), 1U);
  size = {8000, 16, 1};  // 8000 rows of 10667 columns are read, 100000 rows are not
  EXPECT_EQ(check(samples).size(), 1U);
  size.height = 100'000;
  expect_error(
      Status::data, [&] { check(samples); },
      "upright.mp4: has 32 x 24 pixels, whose sides differ too much for 16 x 100000");
}

TEST_F(CheckData, EndsAtTheFirstWithStrict) {
  settings.strict = true;
  write("words.mp4", "no video");
  expect_error(
      Status::no_input,
      [&] {
        check({media_sample("odd.mkv"), sample("missing.mp4", 3), sample("words.mp4", 4)});
      },
      "clips.csv:3: ", "missing.mp4: cannot be opened");
  expect_error(
      Status::data,
      [&] {
        check({sample("words.mp4", 2), sample("missing.mp4", 3)});
      },
      "clips.csv:2: ", "words.mp4: not a video");
}

TEST_F(CheckData, SumsUpManyWarningsAndRefusesToTrainOnNothing) {
  std::vector<DataSample> samples;
  for (int i = 0; i < 25; ++i) samples.push_back(sample(fmt::format("{}.mp4", i), i + 2));
  testing::internal::CaptureStderr();
  expect_error(
      Status::data, [&] { check(samples); },
      "data.path: none of the 25 videos in clips.csv can be used", "the first: clips.csv:2: ");
  testing::internal::GetCapturedStderr();
  samples.push_back(media_sample("upright.mp4"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(check(samples).at(0).index, 25);
  const std::string log = testing::internal::GetCapturedStderr();
  if (log::rank() != first_rank) {
    EXPECT_EQ(log, "");
    return;
  }
  EXPECT_EQ(std::ranges::count(log, '\n'), 21) << log;
  EXPECT_THAT(log, HasSubstr("data.path: 25 of 26 videos in clips.csv are left out, 5 of them "
                             "without a message"));
}

TEST_F(CheckData, RefusesAFileThatWasChangedSince) {
  write("a.mp4", test::read_file(test::media_file("upright.mp4")));
  const UsableSample found = check({sample("a.mp4", 2)}).at(0);
  const Box whole = whole_box({4, 16, 16, 3});
  EXPECT_EQ(read_frames(found, size, {}, whole).shape(), whole.extent);
  world.barrier();
  write("a.mp4", test::read_file(test::media_file("turned.mp4")));
  expect_error(
      Status::data, [&] { read_frames(found, size, {}, whole); },
      "clips.csv:2: ", "a.mp4: ", "the file was changed or replaced");
  world.barrier();
}

}  // namespace
}  // namespace reelmesh
