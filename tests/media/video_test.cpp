// Videos of more formats are compared with ffmpeg in videos_test.py and bad_media_test.py.
#include "media/video.hpp"

#include "media/ppm.hpp"
#include "support/expect_error.hpp"

namespace reelmesh::media {
namespace {

using test::expect_error;

class Videos : public testing::TestWithParam<const char*> {};

TEST_P(Videos, HaveTheFramesOfFfmpeg) {
  const std::filesystem::path file = test::media_file(GetParam());
  const std::vector<Tensor> expected = test::read_ppm(file);
  const VideoFacts facts = video_facts(file, "video");
  EXPECT_EQ(facts.frames, std::ssize(expected));
  EXPECT_EQ(facts.frames, 4);
  EXPECT_EQ((Shape{facts.height, facts.width, 3}), expected[0].shape());
  EXPECT_DOUBLE_EQ(facts.fps, 8);
  std::int64_t next = 0;
  read_video(file, "video", facts.frames, [&](std::int64_t frame, const Tensor& pixels) {
    ASSERT_EQ(frame, next++);
    const Tensor& reference = expected.at(static_cast<std::size_t>(frame));
    ASSERT_EQ(pixels.shape(), reference.shape());
    EXPECT_EQ(test::differences(pixels, reference), 0) << "frame " << frame;
  });
  EXPECT_EQ(next, facts.frames);
}

INSTANTIATE_TEST_SUITE_P(Files, Videos, testing::Values("upright.mp4", "turned.mp4", "odd.mkv"));

TEST(ReadVideo, GivesTheFirstFrames) {
  const std::filesystem::path file = test::media_file("upright.mp4");
  std::vector<std::int64_t> frames;
  const auto note = [&](std::int64_t frame, const Tensor&) { frames.push_back(frame); };
  read_video(file, "video", 2, note);
  EXPECT_EQ(frames, (std::vector<std::int64_t>{0, 1}));
  expect_error(
      Status::data, [&] { read_video(file, "prompt.video", 5, note); },
      "prompt.video: ", "upright.mp4: the video has 4 frames, expected at least 5");
}

TEST(ReadVideoFrames, GivesTheseFrames) {
  const std::filesystem::path file = test::media_file("upright.mp4");
  const std::vector<Tensor> expected = test::read_ppm(file);
  std::vector<std::int64_t> frames;
  read_video_frames(file, "video", {1, 3}, [&](std::int64_t frame, const Tensor& pixels) {
    frames.push_back(frame);
    EXPECT_EQ(test::differences(pixels, expected.at(static_cast<std::size_t>(frame))), 0) << frame;
  });
  EXPECT_EQ(frames, (std::vector<std::int64_t>{1, 3}));
  const auto ignore = [](std::int64_t, const Tensor&) {};
  expect_error(
      Status::data,
      [&] {
        read_video_frames(file, "data", {1, 6}, ignore);
      },
      "upright.mp4: the video has 4 frames, expected at least 7");
  expect_error(Status::internal, [&] { read_video_frames(file, "data", {1, 1}, ignore); });
}

TEST(BadVideos, NameTheFileAndWhatIsWrong) {
  const test::TempFolder folder;
  expect_error(
      Status::no_input, [&] { video_facts(folder / "none.mp4", "prompt.video"); },
      "prompt.video: ", "none.mp4: cannot be opened: No such file");
  expect_error(
      Status::data, [&] { video_facts(test::media_file("palette.png"), "prompt.video"); },
      "palette.png: not a video that is read: its format is png_pipe");
  const std::string whole = test::read_file(test::media_file("odd.mkv"));
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 97) {
    test::write_file(folder / "cut.mkv", whole.substr(0, bytes));
    expect_error(
        Status::data, [&] { video_facts(folder / "cut.mkv", "prompt.video"); },
        "prompt.video: " + (folder / "cut.mkv").string());
  }
}

}  // namespace
}  // namespace reelmesh::media
