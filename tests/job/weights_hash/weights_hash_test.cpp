// The hash of a model, computed by several ranks.
#include "job/weights_hash.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <optional>

#include "support/expect_error.hpp"
#include "support/ranks.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::world;

const fs::path data = fs::path(REELMESH_TEST_DATA) / "cogvideox";

ModelPaths model_paths(const fs::path& root) {
  return {root,
          root / "transformer",
          root / "vae",
          root / "text_encoder",
          root / "tokenizer",
          root / "scheduler"};
}

// The same, by one rank alone and without a cache.
std::string expected(const fs::path& root, const std::vector<LoraFile>& loras = {}) {
  ModelPaths paths = model_paths(root);
  paths.loras = loras;
  const ModelContents model(paths);
  TensorHashes hashes;
  for (const auto& tensor : model.tensors()) hashes.push_back(model.tensor_hash(tensor));
  return model.hash(hashes);
}

// A copy of a model and a cache, in a temporary folder that all ranks share.
class FingerprintOnRanks : public testing::Test {
 protected:
  FingerprintOnRanks() {
    if (world().rank() == 0) {
      created_.emplace();
      fs::copy(data / "sincos", created_->path() / "model", fs::copy_options::recursive);
    }
    folder_ = world().broadcast(created_ ? created_->path().string() : "", 0);
  }
  ~FingerprintOnRanks() override { world().barrier(); }  // before the folder is removed

  std::string hash_of_model() const {
    return weights_hash(world(), model_paths(folder_ / "model"), cache());
  }
  // Remembers files however young they are.
  HashCache cache() const { return HashCache(folder_ / "cache", std::chrono::hours(-1)); }

  std::optional<test::TempFolder> created_;
  fs::path folder_;
};

TEST_F(FingerprintOnRanks, IsThatOfOneRank) {
  const std::string alone = expected(folder_ / "model");
  EXPECT_EQ(hash_of_model(), alone);
  EXPECT_EQ(hash_of_model(), alone);  // remembered
  EXPECT_EQ(weights_hash(world(), model_paths(folder_ / "model"), HashCache({})), alone);
  EXPECT_NE(weights_hash(world(), model_paths(data / "rotary"), cache()), alone);
}

TEST(FingerprintOfLoras, DoesNotDependOnThoseOfScaleZero) {
  const fs::path root = data / "sincos", lora = fs::path(REELMESH_TEST_DATA) / "lora";
  const LoraFile one{lora / "metadata.safetensors", 0.5}, off{lora / "no_metadata.safetensors", 0};
  EXPECT_EQ(expected(root, {off}), expected(root));
  EXPECT_EQ(expected(root, {off, one}), expected(root, {one}));
  EXPECT_NE(expected(root, {one}), expected(root));
}

// What is remembered is not read again: an exchanged entry would change the result.
TEST_F(FingerprintOnRanks, IsTakenFromTheCache) {
  const std::string alone = hash_of_model();
  if (world().rank() == 0) {
    const ModelContents model(model_paths(folder_ / "model"));
    TensorHashes hashes = cache().find(model);
    hashes.front() = std::string(Hash::digits, '0');
    EXPECT_EQ(cache().store(model, hashes), "");
  }
  world().barrier();
  EXPECT_NE(hash_of_model(), alone);
}

TEST_F(FingerprintOnRanks, OnlyChangedFilesAreHashedAgain) {
  const std::string before = hash_of_model();
  world().barrier();
  if (world().rank() == 0) {
    for (const auto& entry : fs::directory_iterator(folder_ / "model" / "vae")) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-100, std::ios::end);
      file.write("\x01\x02\x03\x04", 4);
    }
  }
  world().barrier();
  const std::string after = hash_of_model();
  EXPECT_NE(after, before);
  EXPECT_EQ(after, expected(folder_ / "model"));
}

// Even and odd ranks are two hosts with disks of their own.
TEST_F(FingerprintOnRanks, EachHostHashesItsOwnFiles) {
  const int host = world().rank() % 2;
  const fs::path own = folder_ / fmt::format("host{}", host);
  const auto prepare = [&](const std::function<void()>& work) {
    world().barrier();
    if (world().rank() < 2) work();
    world().barrier();
  };
  prepare([&] {
    fs::create_directory(own);
    fs::copy(data / "sincos", own / "model", fs::copy_options::recursive);
  });
  const HashCache remembered(own / "cache", std::chrono::hours(-1));
  const auto hash = [&] { return weights_hash(world(), model_paths(own / "model"), remembered); };
  const std::string alone = expected(own / "model");
  EXPECT_EQ(hash(), alone);
  EXPECT_EQ(hash(), alone);  // remembered
  if (world().size() == 1) return;

  // A bit of one tensor differs on the second host, whether or not hashes are remembered.
  for (const bool forget : {false, true}) {
    prepare([&] {
      if (forget) fs::remove_all(remembered.folder());
      if (forget || host == 0) return;
      const fs::path file = own / "model/vae/diffusion_pytorch_model.safetensors";
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(-100, std::ios::end);
      const int byte = bytes.get();
      bytes.seekp(-100, std::ios::end);
      bytes.put(static_cast<char>(byte ^ 1));
    });
    test::expect_error(
        Status::data, [&] { hash(); }, "host1/model/vae/", "tensor 'vae/", "on host ", "differs",
        "(rank 0)");
    prepare([&] {
      const ModelContents model(model_paths(own / "model"));
      EXPECT_EQ(model.hash(remembered.find(model)), expected(own / "model"));
    });
  }
}

TEST_F(FingerprintOnRanks, ErrorsAreThoseOfAllRanks) {
  const int last = world().size() - 1;
  const bool is_last = world().rank() == last;
  test::expect_error(
      Status::no_input,
      [&] { weights_hash(world(), model_paths(folder_ / (is_last ? "none" : "model")), cache()); },
      "none");
  if (world().size() == 1) return;
  test::expect_error(
      Status::data,
      [&] {
        const fs::path other = data / "rotary";
        weights_hash(world(), model_paths(is_last ? other : folder_ / "model"), cache());
      },
      fmt::format("rank {}", last), "differ");
}

}  // namespace
}  // namespace reelmesh
