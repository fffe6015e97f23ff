#include "base/new_file.hpp"

#include <gtest/gtest.h>

#include <set>

#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::read_file;
using test::write_file;

class NewFileTest : public testing::Test {
 protected:
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      found.insert(entry.path().filename().string());
    }
    return found;
  }
  test::TempFolder folder;
  const fs::path path = folder / "result.h5";
  const fs::path temporary = folder / ".result.h5.partial";
};
using Names = std::set<std::string>;

TEST_F(NewFileTest, AppearsUnderItsNameWhenItIsComplete) {
  write_file(path, "of an earlier job");
  for (const Flush flush : {Flush::yes, Flush::no}) {
    NewFile file(path, flush);
    file.write("one ");
    file.write("two", 3);
    EXPECT_EQ(file.temporary(), temporary);
    EXPECT_EQ(read_file(temporary), "one two");
    EXPECT_NE(read_file(path), "");
    file.commit();
    EXPECT_EQ(read_file(path), "one two");
    EXPECT_EQ(names(), Names{"result.h5"});
  }
}

TEST_F(NewFileTest, LeavesWhatWasThereIfItIsNotCompleted) {
  write_file(path, "of an earlier job");
  { NewFile(path).write("half"); }
  EXPECT_EQ(read_file(path), "of an earlier job");
  EXPECT_EQ(names(), Names{"result.h5"});
}

TEST_F(NewFileTest, RemovesWhatAKilledProcessLeft) {
  write_file(temporary, "longer than what follows");
  NewFile file(path);
  file.write("new");
  file.commit();
  EXPECT_EQ(read_file(path), "new");
}

TEST_F(NewFileTest, IsNotWrittenThroughALink) {
  write_file(folder / "other", "other");
  fs::create_symlink("other", temporary);
  NewFile file(path);
  file.write("new");
  file.commit();
  EXPECT_EQ(read_file(folder / "other"), "other");
  EXPECT_FALSE(fs::is_symlink(path));
}

TEST_F(NewFileTest, TheFileOfAnotherProcessIsNeitherPublishedNorRemoved) {
  {
    NewFile first(path);
    first.write("first");
    NewFile second(path);
    second.write("sec");  // half written
    expect_error(
        Status::io, [&] { first.commit(); }, temporary.string(), "removed or replaced");
    EXPECT_FALSE(fs::exists(path));
    second.write("ond");
    second.commit();
  }
  EXPECT_EQ(read_file(path), "second");
  EXPECT_EQ(names(), Names{"result.h5"});
}

TEST_F(NewFileTest, SaysWhyItCannotBeCreated) {
  expect_error(
      Status::cannot_create, [&] { NewFile(folder / "missing/name"); }, "missing/.name.partial",
      "No such file");
}

TEST(TemporaryPath, HasAnInverse) {
  EXPECT_EQ(temporary_path("out/clips/000001.h5"), "out/clips/.000001.h5.partial");
  EXPECT_EQ(name_when_complete(".000001.h5.partial"), "000001.h5");
  for (const char* other : {"", ".partial", "..partial", "a.partial", ".a", ".a.partial2"}) {
    EXPECT_EQ(name_when_complete(other), "") << other;
  }
}

}  // namespace
}  // namespace reelmesh
