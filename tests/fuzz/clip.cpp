// A result file that `output.if-exists = resume` checks. corpus/clip/whole.h5 is complete: made by
// `reelmesh run` with a model of `make-model tiny-cogvideox`, one frame of 16 x 16 pixels, 1 step.
#include "store/clip.hpp"
#include "fuzz/fuzz.hpp"

using namespace reelmesh;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path path = fuzz::make_folder() / "000000.h5";
  static const ClipRecord record = [] {
    ClipRecord expected;
    expected.prompt = "a cat";
    expected.seed = 42;
    expected.steps = 1;
    expected.guidance = 6;
    expected.fps = 8;
    expected.scheduler = "CogVideoXDDIMScheduler";
    expected.dtype = "float32";
    expected.fingerprint =
        "model 53b024244899defde2c94fab03c2bd52, backend cpu, dynamic-guidance no, tf32 no, "
        "reproducible yes, attention auto";
    expected.token_ids = {4, 428, 1};
    expected.token_ids.resize(32);
    return expected;
  }();
  static const ClipShapes shapes{
      .video = {1, 16, 16, 3}, .latents = {1, 16, 2, 2}, .prompt_embeds = {}};
  fuzz::write_file(path, fuzz::text_of(data, size));
  fuzz::refusals_allowed([&] { clip_complete(path, record, shapes); });
  return 0;
}
