// A safetensors file: its header, and the values of its tensors.
#include "weights/safetensors.hpp"
#include "fuzz/fuzz.hpp"

using namespace reelmesh;

FUZZ_TARGET(safetensors) {
  static const std::filesystem::path path = fuzz::make_folder() / "model.safetensors";
  fuzz::write_file(path, fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const auto& tensor : file.tensors()) {
      fuzz::refusals_allowed([&] { file.load(tensor.first, DType::float32); });
    }
  });
  return 0;
}
