// Cleaning of a prompt, for Open-Sora and for Wan.
#include "text/clean.hpp"
#include "text/clean_prompt.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(clean) {
  fuzz::refusals_allowed([&] { clean_caption(fuzz::as_text(data, size)); });
  fuzz::refusals_allowed([&] { clean_prompt(fuzz::as_text(data, size)); });
  return 0;
}
