#include "weights/fingerprint.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temp_folder.hpp"
#include "weights/checkpoint.hpp"
#include "weights/writer.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

// A model of three parts with two tensors each, whose values are `first`, first + 1, ...
void write_model(const fs::path& root, float first, std::int64_t max_shard_bytes = 1 << 30) {
  for (const char* part : {"transformer", "vae", "text_encoder", "tokenizer", "scheduler"}) {
    fs::create_directories(root / part);
    std::ofstream(root / part / "config.json") << "{}";
  }
  for (const char* part : {"transformer", "vae", "text_encoder"}) {
    const bool text = std::string(part) == "text_encoder";
    write_safetensors(
        root / part, text ? "model" : "diffusion_pytorch_model",
        {{"a", DType::float32, {3, 2000}}, {"b", DType::float32, {5}}},
        [&](std::size_t, Tensor& out) {
          for (std::int64_t i = 0; i < out.numel(); ++i) {
            out.data<float>()[i] = first + static_cast<float>(i);
          }
        },
        max_shard_bytes);
  }
}

std::string fingerprint(const fs::path& root) {
  return model_fingerprint({root, root / "transformer", root / "vae", root / "text_encoder",
                            root / "tokenizer", root / "scheduler"});
}

TEST(Fingerprint, DependsOnContentsAndNotOnPathsOrFiles) {
  const test::TempFolder folder;
  write_model(folder / "one", 1);
  write_model(folder / "copy", 1);
  write_model(folder / "shards", 1, 20'000);
  write_model(folder / "other", 2);
  const std::string one = fingerprint(folder / "one");
  EXPECT_EQ(one.size(), 16U);
  EXPECT_EQ(fingerprint(folder / "copy"), one);
  ASSERT_TRUE(fs::exists(folder / "shards/vae/diffusion_pytorch_model.safetensors.index.json"));
  EXPECT_EQ(fingerprint(folder / "shards"), one);
  EXPECT_NE(fingerprint(folder / "other"), one);

  std::ofstream(folder / "copy/transformer/config.json") << "{\"a\": 1}";
  EXPECT_NE(fingerprint(folder / "copy"), one);
  std::ofstream(folder / "one/tokenizer/spiece.model") << "pieces";
  EXPECT_NE(fingerprint(folder / "one"), one);
}

}  // namespace
}  // namespace reelmesh
