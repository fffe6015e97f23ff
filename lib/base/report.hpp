#pragma once
// Text tables, as in the report at the end of a job.
#include <string>
#include <vector>

namespace reelmesh {

/// Aligned columns: the first to the left, the others to the right, two spaces between them.
class Table {
 public:
  /// The table has no header if `header` is empty.
  explicit Table(std::vector<std::string> header = {});
  /// Rows may differ in length; missing cells are empty.
  void row(std::vector<std::string> cells);
  /// One line for each row, ended by '\n', without trailing spaces; a rule below the header.
  std::string str() const;

 private:
  bool header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace reelmesh
