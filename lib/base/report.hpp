#pragma once
// Tables for people, as in the report that closes a job.
#include <string>
#include <vector>

namespace reelmesh {

/// Aligned columns: the first to the left, the others to the right, two spaces between them.
class Table {
 public:
  /// A table without header where `header` is empty.
  explicit Table(std::vector<std::string> header = {});
  /// Rows may differ in length; missing cells are empty.
  void row(std::vector<std::string> cells);
  /// One line a row, each ended by '\n', with no spaces at the ends; a rule below the header.
  std::string str() const;

 private:
  bool header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace reelmesh
