// Weights that fail to load in the middle of a model.
#include <fstream>

#include "models/cogvideox/transformer.hpp"
#include "models/reference.hpp"
#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

TEST(Loading, FailsCleanlyWithinABlock) {
  const test::Reference reference("sincos");
  const test::TempFolder folder;
  fs::copy(reference.folder / "transformer", folder.path());
  const fs::path file = folder.path() / "diffusion_pytorch_model.safetensors";
  std::string bytes = read_text(file, std::int64_t{1} << 30);
  const std::string name = "transformer_blocks.1.ff.net.2.weight";
  bytes[bytes.find(name) + name.find('2')] = '9';
  std::ofstream(file, std::ios::binary) << bytes;
  const auto weights = Checkpoint::open(folder.path(), "diffusion_pytorch_model");
  // What the constructor has loaded by then is freed once: a second time ends the process.
  for (int i = 0; i < 10; ++i) {
    test::expect_error(
        Status::data,
        [&] { const CogVideoXTransformer model(weights, reference.transformer, DType::float32); },
        name, "is missing");
  }
}

}  // namespace
}  // namespace reelmesh
