#pragma once
// Text tables, as in the report at the end of a job.
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
  /// One line for each row, ended by '\n', without trailing spaces; a rule below the header.
  std::string str() const;

 private:
  bool header_;
  std::size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace reelmesh
