#pragma once
// Temporary folders that all ranks of a test share, and arrays whose values follow from the index.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "layout/sharded.hpp"

namespace reelmesh {

/// A new folder for this test, the same on all ranks; removed by the destructor. Collective.
class TestFolder {
 public:
  explicit TestFolder(const comm::Group& world);
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::filesystem::path path() const { return path_; }
  /// Names of all files below the folder, hidden ones too, sorted and joined by blanks.
  std::string listing() const;

 private:
  comm::Group world_;
  std::filesystem::path path_;
};

/// A test with such a folder.
class FolderTest : public testing::Test {
 protected:
  FolderTest();
  /// For what one rank calls. An Error is thrown on all ranks.
  void on_rank_0(const std::function<void()>& work) const;
  /// Makes a file, and folders for it.
  static void touch(const std::filesystem::path& path, const std::string& text = "x");

  comm::Group world;
  TestFolder folder;
};

/// The value of an element of a test array; position: its linear index in row-major order.
inline float value_at(std::int64_t position) {
  return static_cast<float>((position * 7919 + 13) % 1000003) / 257.0F;
}
inline std::uint8_t pixel_at(std::int64_t position) {
  return static_cast<std::uint8_t>((position * 31 + position / 97) % 251);
}

/// This rank's part of an array filled with pixel_at (uint8) or value_at (float32).
Sharded filled(const comm::Group& group, const Layout& layout, DType dtype);

/// A layout that cuts one axis at the given offsets: rank r has [cuts[r], cuts[r + 1]).
Layout cut_at(const Shape& global, std::size_t axis, const std::vector<std::int64_t>& cuts);

/// The status of the Error that `work` throws, with its text in `message`; Status::ok if none.
template <class F>
Status status_of(F&& work, std::string* message = nullptr) {
  try {
    work();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.status();
  }
  return Status::ok;
}

/// Runs a shell command on rank 0. Returns 0 on all ranks if it succeeded, otherwise 1.
int run_on_rank_0(const comm::Group& world, const std::string& command);

}  // namespace reelmesh
