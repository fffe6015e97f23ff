#pragma once
// Whole jobs on groups of ranks within one launch.
#include <filesystem>
#include <string>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::test {

/// A layout to test: number of ranks, options of `reelmesh run` that select it (separated by
/// blanks; one replica unless they say otherwise), and a text that the clip file's attribute
/// "layout" must contain.
struct LayoutRow {
  int ranks = 1;
  std::string options, expected_text;
  /// Another job that leaves the clips with previews, which the row's job then completes: its
  /// number of ranks, at most that of the row, and its options. 0: none.
  int left_by = 0;
  std::string left_with;
};

/// Runs a job for each row, several at the same time where they fit into the launch, and expects
/// the clips of all rows to have the same bits as those of the first row, which has one rank, and
/// so all previews. job: options of `reelmesh run` that all rows share. Collective over all ranks
/// of the launch.
void expect_same_clips(const comm::Group& launch, const std::filesystem::path& folder,
                       const std::string& job, const std::vector<LayoutRow>& rows);

/// A temporary folder that all ranks share; the destructor waits for all ranks and removes it.
/// Collective.
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
