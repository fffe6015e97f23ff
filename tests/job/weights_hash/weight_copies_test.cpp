// Weights that are copied to each host. Some ranks pretend to be another host.
#include "job/weight_copies.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "base/file_state.hpp"
#include "support/data_folder.hpp"
#include "support/expect_error.hpp"
#include "support/ranks.hpp"
#include "support/temp_folder.hpp"
#include "weights/contents.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::world;

class WeightCopies : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world().rank() == 0) {
      created_.emplace();
      fs::copy(test::data_folder() / "cogvideox" / "sincos", *created_ / "model",
               fs::copy_options::recursive);
      fs::create_directory(*created_ / "copies");
    }
    folder_ = world().broadcast(created_ ? created_->path().string() : "", 0);
    paths_.root = folder_ / "model";
    paths_.complete();
  }
  void TearDown() override { world().barrier(); }

  std::optional<test::TempFolder> created_;  // on the first rank
  fs::path folder_;
  ModelPaths paths_;
};

TEST_F(WeightCopies, AreReadInPlaceOfTheFiles) {
  for (const int hosts : {1, 2, world().size()}) {
    if (hosts > world().size()) continue;
    const FilesInUse files;
    const comm::Group host = world().split(world().rank() * hosts / world().size());
    const ModelContents before(paths_);
    std::vector<std::string> bytes;
    for (const auto& file : before.files())
      bytes.push_back(file.bytes->copy(0, file.bytes->size()));
    ASSERT_GE(bytes.size(), 3U);
    copy_weights_together(world(), host, paths_, folder_ / "copies");
    EXPECT_TRUE(fs::is_empty(folder_ / "copies")) << "copies have no names";
    const ModelContents after(paths_);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const RegularFile& file = *after.files()[i].bytes;
      EXPECT_EQ(file.copy(0, file.size()), bytes[i]) << file.path();
    }
    // What is in the files now is not read.
    world().barrier();
    const fs::path changed = after.files().front().bytes->path();
    if (world().rank() == 0) {
      std::fstream(changed, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('?');
    }
    world().barrier();
    std::string now(bytes.front().size(), ' ');
    after.files().front().bytes->read_part(0, std::ssize(now), now.data());
    EXPECT_EQ(now, bytes.front());
    before.files().front().bytes->read_part(0, std::ssize(now), now.data());
    EXPECT_NE(now, bytes.front()) << "opened before there were copies";
    world().barrier();
    if (world().rank() == 0) {
      std::ofstream(changed, std::ios::binary)
          .write(bytes.front().data(), std::ssize(bytes.front()));
    }
    world().barrier();
  }
}

TEST_F(WeightCopies, NeedAFolderWithRoom) {
  const FilesInUse files;
  test::expect_error(
      Status::cannot_create, [&] { copy_weights_together(world(), paths_, folder_ / "missing"); },
      "model.copy-to");
  if (!fs::exists("/proc/self/fd")) return;
  test::expect_error(
      Status::unavailable, [&] { copy_weights_together(world(), paths_, "/proc"); },
      "0 B of free space, expected");
}

}  // namespace
}  // namespace reelmesh
