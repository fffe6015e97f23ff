// Cleaning of a prompt.
#include "text/clean.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::refusals_allowed([&] { clean_caption(fuzz::as_text(data, size)); });
  return 0;
}
