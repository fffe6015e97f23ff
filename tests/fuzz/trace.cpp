// trace.h5 of an earlier job, from which a machine is corrected (plan correct).
// Two of corpus/trace are valid: whole.h5, of format 1, of a job that plan simulate wrote, one clip
// of one step on two ranks; columns.h5, of format 2, 16 spans.
#include "fuzz/fuzz.hpp"
#include "store/saved_trace.hpp"

using namespace reelmesh;

FUZZ_TARGET(trace) {
  static const std::filesystem::path path = fuzz::make_folder() / "trace.h5";
  fuzz::write_file(path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([] { read_trace(path, [](const SavedSpan&) {}); });
  return 0;
}
