#include "weights/contents.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <thread>

#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"
#include "weights/hash_cache.hpp"
#include "weights/writer.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t large = 3'000'000;  // elements of the transformer's tensor "a"

// A model of three parts with two tensors each, whose values are `first`, first + 1, ...
void write_model(const fs::path& root, float first, std::int64_t max_shard_bytes = 1 << 30) {
  for (const char* part : {"transformer", "vae", "text_encoder", "tokenizer", "scheduler"}) {
    fs::create_directories(root / part);
    std::ofstream(root / part / "config.json") << "{}";
  }
  for (const std::string part : {"transformer", "vae", "text_encoder"}) {
    const std::int64_t elements = part == "transformer" ? large : 6000;
    write_safetensors(
        root / part, part == "text_encoder" ? "model" : "diffusion_pytorch_model",
        {{"a", DType::float32, {3, elements / 3}}, {"b", DType::float32, {5}}},
        [&](std::size_t, Tensor& out) {
          for (std::int64_t i = 0; i < out.numel(); ++i) {
            out.data<float>()[i] = first + static_cast<float>(i);
          }
        },
        max_shard_bytes);
  }
}

ModelContents open(const fs::path& root) {
  return ModelContents({root, root / "transformer", root / "vae", root / "text_encoder",
                        root / "tokenizer", root / "scheduler"});
}

TensorHashes all_hashes(const ModelContents& model) {
  TensorHashes hashes;
  for (const auto& tensor : model.tensors()) hashes.push_back(model.tensor_hash(tensor));
  return hashes;
}

std::string model_hash(const fs::path& root) {
  const ModelContents model = open(root);
  return model.hash(all_hashes(model));
}

const char* const weights = "diffusion_pytorch_model.safetensors";

// Flips a bit of one byte, `from_end` bytes before the end.
void flip_bit(const fs::path& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const int byte = file.get();
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST(Hash, IsXxh3AndKeepsTextsApart) {
  Hash empty, joined, apart;
  EXPECT_EQ(empty.hex(), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of no bytes, seed 0
  joined.add("ab");
  joined.add("c");
  apart.add("a");
  apart.add("bc");
  EXPECT_NE(joined.hex(), apart.hex());
}

TEST(Fingerprint, DependsOnContentsAndNotOnPathsOrFiles) {
  const test::TempFolder folder;
  write_model(folder / "one", 1);
  write_model(folder / "copy", 1);
  write_model(folder / "shards", 1, 20'000);
  write_model(folder / "other", 2);
  const std::string one = model_hash(folder / "one");
  EXPECT_EQ(one.size(), 32U);
  EXPECT_EQ(model_hash(folder / "copy"), one);
  ASSERT_TRUE(fs::exists(folder / "shards/vae/diffusion_pytorch_model.safetensors.index.json"));
  EXPECT_EQ(model_hash(folder / "shards"), one);
  EXPECT_NE(model_hash(folder / "other"), one);

  std::ofstream(folder / "copy/transformer/config.json") << "{\"a\": 1}";
  EXPECT_NE(model_hash(folder / "copy"), one);
  std::ofstream(folder / "one/tokenizer/spiece.model") << "pieces";
  const std::string pieces = model_hash(folder / "one");
  EXPECT_NE(pieces, one);
  // tokenizer.json, where it is the file that is read.
  std::ofstream(folder / "one/tokenizer/tokenizer.json") << "{}";
  const std::string fast = model_hash(folder / "one");
  EXPECT_NE(fast, pieces);
  std::ofstream(folder / "one/tokenizer/tokenizer.json") << "{ }";
  EXPECT_NE(model_hash(folder / "one"), fast);
  std::ofstream(folder / "one/model_index.json")
      << R"({"_class_name": "A", "tokenizer": ["transformers", "T5Tokenizer"]})";
  EXPECT_EQ(model_hash(folder / "one"), pieces);
}

TEST(Fingerprint, DependsOnEveryByte) {
  const test::TempFolder folder;
  write_model(folder.path(), 1);
  const std::string before = model_hash(folder.path());
  const fs::path file = folder / "transformer" / weights;
  for (const std::int64_t from_end : {1, 20, 21, 1 << 22, (1 << 22) + 21, 7'654'321, 12'000'020}) {
    flip_bit(file, from_end);
    EXPECT_NE(model_hash(folder.path()), before) << from_end;
    flip_bit(file, from_end);
  }
  EXPECT_EQ(model_hash(folder.path()), before);
}

// A mapped file would end the process with SIGBUS.
TEST(Fingerprint, AFileTruncatedWhileItIsHashedIsAnError) {
  const test::TempFolder folder;
  write_model(folder.path(), 1);
  const fs::path file = folder / "transformer" / weights;
  const ModelContents model = open(folder.path());
  const auto& large_one = *std::ranges::find(model.tensors(), std::string("transformer/a"),
                                             &ModelContents::TensorBytes::name);
  std::atomic<bool> begun = false;
  std::thread truncation([&] {
    begun.wait(false);
    fs::resize_file(file, 1000);
  });
  test::expect_error(
      Status::data,
      [&] {
        for (;;) {
          model.tensor_hash(large_one);
          begun = true;
          begun.notify_one();
        }
      },
      file.string(), "changed", "bytes 1000");
  truncation.join();
}

// What a job has hashed is what it loads later.
TEST(Fingerprint, AJobRefusesFilesThatHaveChangedSinceItOpenedThem) {
  const test::TempFolder folder;
  for (const char* name : {"transformer/diffusion_pytorch_model.safetensors", "vae/config.json"}) {
    write_model(folder.path(), 1);
    const FilesInUse job;
    const std::string before = model_hash(folder.path());
    EXPECT_EQ(model_hash(folder.path()), before);
    const fs::path file = folder / name;
    fs::copy_file(file, folder / "copy");
    fs::rename(folder / "copy", file);
    test::expect_error(
        Status::data, [&] { open(folder.path()); }, file.string(), "replaced");
  }
}

TEST(Fingerprint, WorkIsDividedByBytes) {
  EXPECT_THAT(divide_by_bytes({}, 3), IsEmpty());
  EXPECT_THAT(divide_by_bytes({0, 0}, 3), ElementsAre(0, 0));
  EXPECT_THAT(divide_by_bytes({10, 10, 10, 10}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(divide_by_bytes({40, 1, 1, 1, 1, 36}, 2), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(divide_by_bytes({5}, 4), ElementsAre(2));
  const std::vector<std::int64_t> bytes{7, 300, 12, 12, 12, 90, 0, 250, 41, 41, 41, 3, 120, 8};
  const std::int64_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const std::vector<int> owners = divide_by_bytes(bytes, ranks);
    EXPECT_TRUE(std::ranges::is_sorted(owners));
    std::vector<std::int64_t> shares(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      shares.at(static_cast<std::size_t>(owners[i])) += bytes[i];
    }
    EXPECT_LT(std::ranges::max(shares), total / ranks + 300);
  }
}

// A model, and a cache that remembers files however young they are.
class Remembered : public testing::Test {
 protected:
  Remembered() { write_model(root_, 1); }

  std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(cache_.folder())) found.push_back(entry.path());
    return found;
  }
  // The first job: hashes everything, and remembers it.
  TensorHashes hash_and_store() {
    const ModelContents model = open(root_);
    const TensorHashes hashes = all_hashes(model);
    EXPECT_EQ(cache_.store(model, hashes), "");
    return hashes;
  }
  // How many tensors a later job finds.
  std::ptrdiff_t found() const {
    const TensorHashes hashes = cache_.find(open(root_));
    return std::ranges::count_if(hashes, [](const std::string& hash) { return !hash.empty(); });
  }

  test::TempFolder folder_;
  fs::path root_ = folder_ / "model";
  HashCache cache_{folder_ / "cache/hashes", std::chrono::hours(-1)};
};

TEST_F(Remembered, UntilAFileChanges) {
  EXPECT_EQ(found(), 0);
  const TensorHashes hashes = hash_and_store();
  EXPECT_EQ(cache_.find(open(root_)), hashes);
  EXPECT_EQ(entries().size(), 3U);
  // Through a link the files are the same ones.
  fs::create_symlink(root_, folder_ / "link");
  EXPECT_EQ(cache_.find(open(folder_ / "link")), hashes);

  // Same size and time of modification, other contents.
  const fs::path file = root_ / "transformer" / weights;
  const auto modified = fs::last_write_time(file);
  flip_bit(file, 100);
  fs::last_write_time(file, modified);
  EXPECT_EQ(found(), 4);  // the tensors of the other two files
  const TensorHashes changed = hash_and_store();
  EXPECT_NE(changed, hashes);
  EXPECT_EQ(cache_.find(open(root_)), changed);
  EXPECT_EQ(entries().size(), 3U);

  // A copy under the same name.
  fs::copy_file(file, root_ / "copy");
  fs::rename(root_ / "copy", file);
  fs::last_write_time(file, modified);
  EXPECT_EQ(found(), 4);
}

TEST_F(Remembered, NotIfAFileChangesWhileItIsHashed) {
  const ModelContents model = open(root_);
  const TensorHashes hashes = all_hashes(model);
  flip_bit(root_ / "vae" / weights, 1);
  EXPECT_EQ(cache_.store(model, hashes), "");
  EXPECT_EQ(found(), 4);
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(Remembered, NotIfAFileChangedJustBefore) {
  const HashCache usual(cache_.folder());
  const ModelContents model = open(root_);
  EXPECT_EQ(usual.store(model, all_hashes(model)), "");
  EXPECT_FALSE(fs::exists(cache_.folder()));
}

TEST_F(Remembered, DamagedEntriesAreIgnored) {
  const TensorHashes hashes = hash_and_store();
  const fs::path entry = entries().front();
  const std::string good = test::read_file(entry);
  std::string other_hash = good;
  const std::size_t last = other_hash.rfind("\": \"") + 4;  // a digit of the last hash
  other_hash[last] = other_hash[last] == '0' ? '1' : '0';
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), std::string("7"),
        std::string(100'000, '['), std::string("\0\xff", 2), good.substr(0, good.size() / 2),
        good + good, other_hash, std::string(R"({"tensors": {"vae/a": 7}})")}) {
    test::write_file(entry, bad);
    EXPECT_EQ(found(), 4) << bad.substr(0, 100);
  }
  fs::remove(entry);
  fs::create_directory(entry);
  EXPECT_EQ(found(), 4);
  const ModelContents model = open(root_);
  EXPECT_THAT(cache_.store(model, hashes), testing::HasSubstr(entry.string()));
  fs::remove(entry);
  ASSERT_EQ(::mkfifo(entry.c_str(), 0600), 0);
  EXPECT_EQ(found(), 4);
  EXPECT_EQ(cache_.store(model, hashes), "");  // takes its place
  EXPECT_EQ(cache_.find(model), hashes);
}

TEST_F(Remembered, WithoutAUsableFolderNothing) {
  const ModelContents model = open(root_);
  const TensorHashes hashes = all_hashes(model);
  test::write_file(folder_ / "file", "");
  const HashCache none({}), blocked(folder_ / "file/hashes", std::chrono::hours(-1));
  EXPECT_EQ(none.store(model, hashes), "");
  EXPECT_NE(blocked.store(model, hashes), "");
  for (const HashCache& cache : {none, blocked}) {
    EXPECT_THAT(cache.find(model), Each(IsEmpty()));
  }
}

// Sets or removes an environment variable; the destructor restores it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) before_ = old;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

fs::path users_folder(const char* cache_home, const char* home) {
  const Variable xdg("XDG_CACHE_HOME", cache_home), user("HOME", home);
  return HashCache::of_user().folder();
}

TEST(HashCache, IsInTheUsersCacheFolder) {
  EXPECT_EQ(users_folder("/x", "/home/u"), "/x/reelmesh/hashes");
  EXPECT_EQ(users_folder(nullptr, "/home/u"), "/home/u/.cache/reelmesh/hashes");
  EXPECT_EQ(users_folder("", "/home/u"), "/home/u/.cache/reelmesh/hashes");
  EXPECT_EQ(users_folder("relative", "/home/u"), "/home/u/.cache/reelmesh/hashes");
  EXPECT_EQ(users_folder(nullptr, "relative"), "");
  EXPECT_EQ(users_folder(nullptr, nullptr), "");
}

}  // namespace
}  // namespace reelmesh
