// Cleaning of a prompt.
#include "text/clean.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(clean) {
  fuzz::refusals_allowed([&] { clean_caption(fuzz::as_text(data, size)); });
  return 0;
}
