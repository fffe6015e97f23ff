#include "train/frames.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

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

TEST(ChosenFrames, AreThoseOfAPart) {
  EXPECT_EQ(chosen_frames(video(16, 40), 8, 4, {10, 17}), (Frames{10, 12, 14, 16}));
  EXPECT_EQ(chosen_frames(video(16, 40), 8, 4, {10, 16}), Frames{});
  EXPECT_EQ(chosen_frames(video(16, 40), {}, 3, {38, 90}), Frames{});
  EXPECT_EQ(chosen_frames(video(16, 40), {}, 2, {38, 90}), (Frames{38, 39}));
  InputFacts facts = video(9.6, 25);
  for (int i = 0; i < 25; ++i) facts.times.push_back(i < 15 ? 40 * i : 560 + 200 * (i - 14));
  EXPECT_EQ(chosen_frames(facts, 8, 4, {12, 17}), (Frames{12, 14, 15, 15}));  // from 480 ms on
  EXPECT_EQ(chosen_frames(facts, 8, 5, {12, 15}), Frames{});
}

TEST(ChosenClips, BeginAtTheStartInTheMiddleOrAnywhere) {
  using Clips = std::vector<Frames>;
  const auto chosen = [](FramesFrom from, double drawn, std::optional<double> fps) {
    return frames_of_clips(video(16, 20), fps, 4, from, drawn, {1, 19});
  };
  EXPECT_EQ(chosen(FramesFrom::start, 0.9, {}), (Clips{{1, 2, 3, 4}}));
  EXPECT_EQ(chosen(FramesFrom::middle, 0.9, {}), (Clips{{8, 9, 10, 11}}));  // 15 beginnings
  EXPECT_EQ(chosen(FramesFrom::random, 0, {}), (Clips{{1, 2, 3, 4}}));
  EXPECT_EQ(chosen(FramesFrom::random, 0.4, {}), (Clips{{7, 8, 9, 10}}));
  EXPECT_EQ(chosen(FramesFrom::random, 0.9999999, {}), (Clips{{15, 16, 17, 18}}));
  EXPECT_EQ(chosen(FramesFrom::middle, 0, 8), (Clips{{6, 8, 10, 12}}));  // 12 beginnings
  EXPECT_EQ(chosen(FramesFrom::random, 0.9999999, 8), (Clips{{12, 14, 16, 18}}));
  EXPECT_EQ(chosen(FramesFrom::all, 0.9, {}),
            (Clips{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}, {13, 14, 15, 16}}));
  EXPECT_EQ(chosen(FramesFrom::all, 0, 8), (Clips{{1, 3, 5, 7}, {9, 11, 13, 15}}));
  EXPECT_EQ(chosen(FramesFrom::all, 0, 3.2), (Clips{{1, 6, 11, 16}}));
  for (const FramesFrom from :
       {FramesFrom::start, FramesFrom::middle, FramesFrom::random, FramesFrom::all}) {
    EXPECT_EQ(chosen(from, 0.5, 2.0), Clips{});
    EXPECT_EQ(frames_of_clips(video(0, 1), 8, 1, from, 0.5), Clips{{0}});  // an image
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

// Those of their videos as they are.
TrainSettings own_rate() {
  TrainSettings settings;
  settings.data.own_fps = true;
  return settings;
}

/// Its clip of this size, with `fps` frames in a second, or as many as its video.
UsableSample usable(const std::string& name, const VideoSize& size, std::optional<double> fps) {
  TrainSettings settings = own_rate();
  settings.data.own_fps = !fps;
  settings.data.fps = fps;
  return check_data(test::world(), {media_sample(name)}, std::vector{size}, settings, 8).at(0);
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
    expect_equal(read_frames(usable(c.name, c.size, c.fps), c.size, whole),
                 expected_frames(c.name, c.frames, c.size, c.resized, c.top, c.left));
  }
}

TEST(ReadFrames, AreCroppedAndMirroredAsDrawn) {
  const VideoSize size{12, 13, 2};  // of frames of 12 rows and 16 columns
  TrainSettings settings = own_rate();
  settings.data.crop = Crop::random;
  settings.data.flip = 0.5;
  DataSample sample = media_sample("upright.mp4");
  sample.repeat = 40;
  const std::vector<UsableSample> found =
      check_data(test::world(), {sample}, std::vector{size}, settings, 8);
  ASSERT_EQ(found.size(), 40U);
  std::set<std::int64_t> lefts;
  std::set<std::string> excerpts;
  int mirrored = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const UsableSample& clip = found[i];
    EXPECT_EQ(clip.index, static_cast<std::int64_t>(i));
    // torch.Generator().manual_seed(42 + 3 · 2**30 + i), then rand(1): place, row, column, flip
    TorchGenerator random(42 + 3 * (std::uint64_t{1} << 30) + i);
    random.rand();
    random.rand();
    EXPECT_EQ(clip.left, static_cast<std::int64_t>(random.rand() * 4));
    EXPECT_EQ(clip.is_mirrored, random.rand() < 0.5F);
    EXPECT_EQ(clip.top, 0);
    lefts.insert(clip.left);
    excerpts.insert(clip.excerpt());
    mirrored += clip.is_mirrored ? 1 : 0;
    if (i >= 8) continue;
    const Tensor whole = expected_frames("upright.mp4", {0, 1}, size, {12, 16}, 0, clip.left);
    Tensor expected = whole.clone();
    for (std::int64_t at = 0; at < whole.numel() && clip.is_mirrored; ++at) {
      const std::int64_t row = at / 39, column = at / 3 % 13, channel = at % 3;
      expected.data<std::uint8_t>()[at] =
          std::as_const(whole).data<std::uint8_t>()[row * 39 + (12 - column) * 3 + channel];
    }
    expect_equal(read_frames(clip, size, whole_box({2, 12, 13, 3})), expected);
  }
  EXPECT_EQ(lefts, (std::set<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(excerpts.size(), 8U);
  EXPECT_GT(mirrored, 8);
  EXPECT_LT(mirrored, 32);
}

TEST(ReadFrames, GiveEachRankItsBox) {
  const VideoSize size{12, 15, 7};
  const UsableSample sample = usable("upright.mp4", size, 16);
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
    expect_equal(read_frames(sample, size, box), part);
  }
  expect_error(Status::internal, [&] {
    read_frames(sample, size, {{1, 0, 0, 0}, {7, 12, 15, 3}});
  });
}

/// A folder of the first rank, on all ranks.
class CheckData : public testing::Test {
 protected:
  CheckData() : folder(world.broadcast(own.path().string(), 0)) {
    settings.paths = {{"clips.csv"}};
  }
  ~CheckData() override { world.barrier(); }

  void write(const std::string& name, std::string_view bytes) const {
    if (world.rank() == 0) test::write_file(folder / name, bytes);
    world.barrier();
  }
  DataSample sample(const std::string& name, int line) const {
    return {folder / name, "a prompt", fmt::format("clips.csv:{}", line)};
  }
  std::vector<UsableSample> check(const std::vector<DataSample>& samples) const {
    return check_data(world, samples, sizes.empty() ? std::vector{size} : sizes, train, model_fps);
  }

  const comm::Group& world = test::world();
  test::TempFolder own;
  std::filesystem::path folder;
  VideoSize size{16, 16, 4};
  std::vector<VideoSize> sizes;  // in place of one
  double model_fps = 8;
  TrainSettings train = own_rate();
  DataSettings& settings = train.data;
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

// upright.mp4 has 4 frames at 8 fps.
TEST_F(CheckData, TakesThePartOfAVideoThatTheListSays) {
  size.frames = 2;
  train.data.frames_from = FramesFrom::all;
  DataSample part = media_sample("upright.mp4");
  part.start = 0.125;
  part.repeat = 2;
  DataSample short_part = part;
  short_part.end = 0.3;
  const std::vector<UsableSample> found =
      check({media_sample("upright.mp4"), short_part, part, media_sample("odd.mkv")});
  std::vector<std::pair<std::int64_t, Frames>> clips;
  for (const UsableSample& clip : found) clips.emplace_back(clip.index, clip.frames);
  EXPECT_EQ(clips, (std::vector<std::pair<std::int64_t, Frames>>{{0, {0, 1}},
                                                                 {1, {2, 3}},
                                                                 {2, {1, 2}},
                                                                 {3, {1, 2}},
                                                                 {4, {1, 2}},
                                                                 {5, {1, 2}},
                                                                 {6, {0, 1}},
                                                                 {7, {2, 3}}}));
  EXPECT_EQ(found[0].excerpt(), "frames 0-1 from row 0, column 2");
  settings.strict = true;
  short_part.end = 0.25;
  expect_error(
      Status::data, [&] { check({short_part}); },
      "upright.mp4: has 1 frames at 8 fps between start and end, expected at least 2");
}

TEST_F(CheckData, HasTheRateOfTheModelAndSaysSo) {
  settings.own_fps = false;
  size.frames = 2;
  model_fps = 4;
  const std::vector<DataSample> samples{media_sample("upright.mp4"), media_sample("odd.mkv")};
  const auto frames_and_log = [&] {
    testing::internal::CaptureStderr();
    const Frames frames = check(samples).at(0).frames;
    return std::pair(frames, testing::internal::GetCapturedStderr());
  };
  auto [frames, log] = frames_and_log();
  EXPECT_EQ(frames, (Frames{0, 2}));
  const std::string said =
      "data.path: frames of 2 of 2 clips are chosen for 4 in a second, the model's rate; their "
      "videos have 8";
  EXPECT_EQ(log.find(said) != log.npos, log::rank() == first_rank) << log;
  settings.fps = 8;
  std::tie(frames, log) = frames_and_log();
  EXPECT_EQ(frames, (Frames{0, 1}));
  EXPECT_EQ(log, "");
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
  settings.own_fps = false;
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
  EXPECT_EQ(read_frames(found, size, whole).shape(), whole.extent);
  world.barrier();
  write("a.mp4", test::read_file(test::media_file("turned.mp4")));
  expect_error(
      Status::data, [&] { read_frames(found, size, whole); },
      "clips.csv:2: ", "a.mp4: ", "the file was changed or replaced");
  world.barrier();
}

}  // namespace
}  // namespace reelmesh
