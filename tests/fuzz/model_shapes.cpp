// config.json of a part: the tensors that a model of this configuration has, found by making it on
// shapes.
#include "fuzz/fuzz.hpp"
#include "models/checkpoints/parts.hpp"

using namespace reelmesh;

FUZZ_TARGET(model_shapes) {
  fuzz::refusals_allowed([&] {
    const Config config = Config::parse(fuzz::as_text(data, size), "config.json");
    for (const ModelPart part : model_parts) {
      fuzz::refusals_allowed([&] { expected_tensors(part, config); });
    }
  });
  return 0;
}
