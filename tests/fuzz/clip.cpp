// A result file that `output.if-exists = resume` checks, and that another job takes as its video
// (prompt.video). corpus/clip/whole.h5 is complete: made by
// `reelmesh run` with a model of `make-model tiny-cogvideox`, one frame of 16 x 16 pixels, 1 step.
#include "fuzz/corpus_clip.hpp"
#include "fuzz/fuzz.hpp"
#include "store/saved_video.hpp"

using namespace reelmesh;

FUZZ_TARGET(clip) {
  static const std::filesystem::path path = fuzz::make_folder() / "000000.h5";
  static const ClipRecord record = fuzz::corpus_clip();
  static const ClipShapes shapes = fuzz::corpus_clip_shapes();
  fuzz::write_file(path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] { clip_complete(path, record, shapes); });
  fuzz::refusals_allowed([&] {
    const SavedVideo video = SavedVideo::open(path, "prompt.video", 1 << 16, 1 << 20);
    video.check();
    for (std::int64_t frame = 0; frame < video.frames(); ++frame) video.read(frame);
  });
  return 0;
}
