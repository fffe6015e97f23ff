// job.h5 of an earlier job that is run again (--from). corpus/job/whole.h5 is valid: made by
// `reelmesh run` with a model of `make-model tiny-cogvideox`, two clips of one frame of 16 x 16
// pixels, 1 step.
#include <array>

#include "fuzz/fuzz.hpp"
#include "options.hpp"

using namespace reelmesh;

FUZZ_TARGET(job) {
  static const std::filesystem::path path = fuzz::make_folder() / "job.h5";
  static const std::array<const char*, 5> words{"run", "--from", path.c_str(), "--output.path",
                                                "again"};
  fuzz::write_file(path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] { app::parse_run(words.size(), words.data()); });
  return 0;
}
