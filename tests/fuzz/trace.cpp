// trace.h5 of an earlier job, from which a machine is corrected (plan correct).
// corpus/trace/whole.h5 is valid: of a job that plan simulate wrote, one clip of one step on two
// ranks.
#include "fuzz/fuzz.hpp"
#include "store/saved_trace.hpp"

using namespace reelmesh;

FUZZ_TARGET(trace) {
  static const std::filesystem::path path = fuzz::make_folder() / "trace.h5";
  fuzz::write_file(path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([] { read_trace(path, [](const SavedSpan&) {}); });
  return 0;
}
