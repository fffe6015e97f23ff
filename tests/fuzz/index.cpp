// The index of a checkpoint in several files, beside two valid files: one.safetensors has tensors
// a and b, two.safetensors has c.
#include "fuzz/fuzz.hpp"
#include "weights/checkpoint.hpp"

using namespace reelmesh;

namespace {

std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + std::string(data_bytes, '\0');
}

std::filesystem::path folder_with_weights() {
  const std::filesystem::path folder = fuzz::make_folder();
  fuzz::write_file(folder / "one.safetensors",
                   safetensors_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                    R"("b":{"dtype":"F16","shape":[],"data_offsets":[8,10]}})",
                                    10));
  fuzz::write_file(
      folder / "two.safetensors",
      safetensors_file(R"({"c":{"dtype":"I8","shape":[1,3],"data_offsets":[0,3]}})", 3));
  return folder;
}

}  // namespace

FUZZ_TARGET(index) {
  static const std::filesystem::path folder = folder_with_weights();
  static const ExpectedShapes expected{{"a", {2}}, {"b", {1}}, {"c", {1, 3}}};
  fuzz::write_file(folder / "model.safetensors.index.json", fuzz::as_text(data, size));
  fuzz::refusals_allowed([&] {
    const Checkpoint checkpoint = Checkpoint::open(folder, "model");
    checkpoint.compare(expected);
    checkpoint.load("a", {2}, DType::float32);
    checkpoint.check(expected);
  });
  return 0;
}
