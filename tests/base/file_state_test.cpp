#include "base/file_state.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::write_file;

TEST(FileState, ShowsEveryKindOfChange) {
  const test::TempFolder folder;
  const fs::path file = folder / "a";
  EXPECT_EQ(file_state(file), FileState{});
  write_file(file, "one");
  const FileState before = file_state(file);
  EXPECT_TRUE(before.regular);
  EXPECT_EQ(before.size, 3);
  EXPECT_EQ(file_state(file), before);
  require_unchanged("a", before, file_state(file));

  write_file(folder / "b", "two");
  fs::rename(folder / "b", file);
  expect_error(
      Status::data, [&] { require_unchanged("image: a", before, file_state(file)); },
      "image: a: the file was changed or replaced", "inode");
  write_file(file, "three");
  expect_error(
      Status::data, [&] { require_unchanged("a", before, file_state(file)); }, "bytes 5, was 3");
  fs::remove(file);
  expect_error(
      Status::data, [&] { require_unchanged("a", before, file_state(file)); }, "a: ", "removed");
}

TEST(FilesInUse, AreThoseOfTheFirstUse) {
  const FileState one{.inode = 1, .size = 3}, two{.inode = 2, .size = 3};
  use_file("a", one);
  use_file("a", two);  // outside a job nothing is remembered
  {
    const FilesInUse job;
    use_file("a", two);
    use_file("b", one);
    use_file("a", two);
    expect_error(
        Status::data, [&] { use_file("a", one); }, "a: ", "inode 1, was 2");
    {
      const FilesInUse another;
      use_file("a", one);
    }
    expect_error(
        Status::data, [&] { use_file("a", one); }, "inode 1, was 2");
  }
  const FilesInUse later;
  use_file("a", one);
}

}  // namespace
}  // namespace reelmesh
