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

TEST(Configs, RefuseNumbersThatGiveNoPictures) {
  const auto refuses = [](auto read, const char* key, const char* value) {
    const std::string text = fmt::format("{{\"{}\": {}}}", key, value);
    test::expect_error(
        Status::data, [&] { read(Config::parse(text, "config.json")); }, "config.json", key, value);
  };
  for (const auto& [key, value] : {std::pair{"norm_eps", "-1"},
                                   {"norm_eps", "0"},
                                   {"spatial_interpolation_scale", "1e-300"},
                                   {"temporal_interpolation_scale", "-1.5"},
                                   {"freq_shift", "17"},
                                   {"sample_frames", "1048576"},
                                   {"sample_height", "100000"}}) {
    refuses(CogVideoXConfig::read, key, value);
  }
  refuses(CogVideoXVaeConfig::read, "scaling_factor", "0");
  refuses(CogVideoXVaeConfig::read, "norm_eps", "-1");
  refuses(T5Config::read, "layer_norm_epsilon", "-1");
}

}  // namespace
}  // namespace reelmesh
