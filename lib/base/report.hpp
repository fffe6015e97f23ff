#pragma once
// Tables for people, as in the report that closes a job.
#include <cstddef>
#include <string>
#include <vector>

namespace reelmesh {

/// Aligned columns with two spaces between them.
class Table {
 public:
  /// header: empty for a table without one. The first `left` columns are aligned to the left, the
  /// others to the right.
  explicit Table(std::vector<std::string> header = {}, std::size_t left = 1);
  /// Rows may differ in length; missing cells are empty.
  void row(std::vector<std::string> cells);
  /// One line a row, each ended by '\n', with no spaces at the ends; a rule below the header.
  std::string str() const;

 private:
  bool header_;
  std::size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace reelmesh
