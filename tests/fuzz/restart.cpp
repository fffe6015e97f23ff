// A restart file that `output.if-exists = resume` reads. corpus/restart/whole.h5 is valid for the
// record below.
#include "store/restart.hpp"

#include "fuzz/fuzz.hpp"
#include "sampler/generator.hpp"

using namespace reelmesh;

FUZZ_TARGET(restart) {
  static const std::filesystem::path folder = fuzz::make_folder();
  static const ClipRecord record = [] {
    std::filesystem::create_directories(folder / "restart");
    ClipRecord expected;
    expected.prompt = "a cat";
    expected.settings.seed = 42;
    expected.settings.steps = 5;
    expected.settings.guidance = 6;
    expected.settings.fps = 8;
    expected.scheduler = "CogVideoXDPMScheduler";
    expected.dtype = "float32";
    expected.fingerprint = "model 7e5c94025d13ea1e, backend cpu";
    return expected;
  }();
  static const Shape latents{1, 4, 2, 3}, embeddings{3, 2, 4};
  fuzz::write_file(restart_path(folder, 0), fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] {
    const auto file =
        RestartFile::open(folder, record, "texts [1 2]", {latents, embeddings, {}, {}});
    if (!file) return;
    file->read("latents", whole_box(latents));
    for (std::int64_t i = 0; i < file->record().history; ++i) {
      file->read(fmt::format("history{}", i), {{0, 0, 1, 0}, {1, 4, 1, 3}});
    }
    TorchGenerator::restored(file->record().generator);
  });
  return 0;
}
