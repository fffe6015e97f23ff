// A video file (prompt.video).
#include "media/video.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(video) {
  static const std::filesystem::path path = fuzz::make_folder() / "video";
  fuzz::write_file(path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] {
    const media::VideoFacts facts = media::video_facts(path, "video");
    media::read_video(path, "video", facts.frames, [&](std::int64_t, const Tensor& pixels) {
      expect(pixels.shape() == Shape{facts.height, facts.width, 3}, "frames of two sizes");
    });
  });
  return 0;
}
