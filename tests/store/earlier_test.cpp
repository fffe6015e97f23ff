#include "store/earlier.hpp"

#include <fstream>

#include "comm/together.hpp"
#include "store_support.hpp"
#include "support/expect_error.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

class Earlier : public testing::Test {
 protected:
  Earlier() : folder(world) {}

  /// Called on rank 0; an Error is thrown on all ranks.
  void on_rank_0(const std::function<void()>& work) {
    comm::run_collectively(world, [&] {
      if (world.rank() == 0) work();
    });
  }
  void write(const std::string& name, const std::string& content = "") {
    const std::filesystem::path path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  std::string read(const std::string& name) {
    std::ifstream file(folder.path() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t set_aside() {
    return set_clips_aside(folder.path(), [](int clip) { return clip == 1; });
  }

  comm::Group world = test::world();
  TestFolder folder;
};

TEST_F(Earlier, ClipsThatDoNotStayAreMovedAndNothingElse) {
  on_rank_0([&] {
    for (const char* name :
         {"clips/000000.h5", "clips/000001.h5", "clips/1000000.h5", "clips/0000002.h5",
          "clips/12.h5", "clips/.000003.h5.partial", "clips/000004.h5.bak", "clips/best.h5",
          "clips/99999999999.h5", "clips/000005.h5/file", "target", "000006.h5"}) {
      write(name);
    }
    std::filesystem::create_symlink("../target", folder.path() / "clips/000007.h5");
    EXPECT_EQ(set_aside(), 3U);
    EXPECT_EQ(std::filesystem::read_symlink(folder.path() / "earlier/000007.h5"), "../target");
  });
  EXPECT_EQ(folder.listing(),
            "000006.h5 clips/.000003.h5.partial clips/0000002.h5 clips/000001.h5 "
            "clips/000004.h5.bak clips/000005.h5/file clips/12.h5 clips/99999999999.h5 "
            "clips/best.h5 "
            "earlier/000000.h5 earlier/000007.h5 earlier/1000000.h5 target");
}

TEST_F(Earlier, ClipsOfEarlierVersionsAreMovedToTheirFolders) {
  on_rank_0([&] {
    for (const char* name : {"clips/009999.h5", "clips/010000.h5", "clips/012345.h5",
                             "clips/013000.h5", "clips/013/013000.h5", "clips/14000.h5"}) {
      write(name, name);
    }
    move_clips_to_folders(folder.path());
    EXPECT_EQ(read("clips/012/012345.h5"), "clips/012345.h5");
    EXPECT_EQ(read("clips/013/013000.h5"), "clips/013/013000.h5");
  });
  EXPECT_EQ(folder.listing(),
            "clips/009999.h5 clips/010/010000.h5 clips/012/012345.h5 clips/013/013000.h5 "
            "clips/013000.h5 clips/14000.h5");
}

TEST_F(Earlier, ClipsInFoldersStayAtTheirPlacesOnly) {
  on_rank_0([&] {
    for (const char* name :
         {"clips/000001.h5", "clips/012/012345.h5", "clips/012/012346.h5", "clips/012/000007.h5",
          "clips/012345.h5", "clips/12/012347.h5", "clips/000/000003.h5"}) {
      write(name);
    }
    EXPECT_EQ(set_clips_aside(folder.path(), [](int clip) { return clip != 12346; }), 3U);
  });
  EXPECT_EQ(folder.listing(),
            "clips/000/000003.h5 clips/000001.h5 clips/012/012345.h5 clips/12/012347.h5 "
            "earlier/000007.h5 earlier/012345.h5 earlier/012346.h5");
}

TEST_F(Earlier, NothingThereIsReplaced) {
  on_rank_0([&] {
    for (const char* content : {"first", "second", "third"}) {
      write("clips/000000.h5", content);
      EXPECT_EQ(set_aside(), 1U);
    }
    EXPECT_EQ(set_aside(), 0U);
    EXPECT_EQ(read("earlier/000000.h5"), "first");
    EXPECT_EQ(read("earlier/000000.1.h5"), "second");
    EXPECT_EQ(read("earlier/000000.2.h5"), "third");
  });
}

TEST_F(Earlier, NoFolderIsMadeForNothing) {
  on_rank_0([&] {
    write("clips/000001.h5");
    EXPECT_EQ(set_aside(), 0U);
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "earlier"));
  });
}

TEST_F(Earlier, ALinkInPlaceOfTheFolderIsNotFollowed) {
  on_rank_0([&] {
    write("clips/000000.h5");
    std::filesystem::create_directory(folder.path() / "elsewhere");
    std::filesystem::create_directory_symlink("elsewhere", folder.path() / "earlier");
    test::expect_error(
        Status::cannot_create, [&] { set_aside(); }, "earlier: found a file or a link");
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "clips/000000.h5"));
  });
}

}  // namespace
}  // namespace reelmesh
