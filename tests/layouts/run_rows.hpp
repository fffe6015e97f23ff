#pragma once
// Whole jobs on groups of ranks within one launch.
#include <filesystem>
#include <string>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::test {

/// A layout: how many ranks, the words of `reelmesh run` that ask for it (separated by blanks), and
/// a text that the description of the layout in the clip's file must contain.
struct LayoutRow {
  int ranks = 1;
  std::string options, told;
};

/// Runs a job on each row's ranks, several side by side where they fit the launch, and expects the
/// clips of every row to have the bits of the first one's, which has one rank. job: words of
/// `reelmesh run` that all rows have in common. Collective over all ranks of the launch.
void expect_same_clips(const comm::Group& launch, const std::filesystem::path& folder,
                       const std::string& job, const std::vector<LayoutRow>& rows);

/// A folder that all ranks see, removed when the last rank is done with it. Collective.
class SharedFolder {
 public:
  explicit SharedFolder(const comm::Group& launch);
  ~SharedFolder();
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  comm::Group launch_;
  std::filesystem::path path_;
};

}  // namespace reelmesh::test
