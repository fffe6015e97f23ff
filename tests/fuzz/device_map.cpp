// Device maps of accelerate (.json) and ranges on the command line.
#include "plan/device_map.hpp"

#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(device_map) {
  const std::string text(fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] { device_map_from_json(text, "map.json", 24, 4).stages(); });
  fuzz::refusals_allowed([&] { parse_device_map(text, 24, 4).stages(); });
  return 0;
}
