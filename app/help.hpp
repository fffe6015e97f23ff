#pragma once
// The text of --help.
#include <string>
#include <vector>

namespace reelmesh::app {

struct HelpLine {
  std::string name;         ///< "--sample.steps N"
  std::string description;  ///< wrapped at blanks
};

struct HelpSection {
  std::string title;
  std::vector<HelpLine> lines;
};

/// How the reader's terminal shows text.
struct HelpStyle {
  int columns = 80;
  bool bold_titles = false;
};

/// Of standard output: the width of the terminal, 60 to 100 columns, 80 where there is none; bold
/// titles on a terminal, except under mpirun, where standard output may still be a file, and where
/// NO_COLOR is set (https://no-color.org).
HelpStyle help_style();

/// Titles, and below each its names and descriptions in two columns. A description begins below its
/// name where the name is too long for its column.
std::string format_help(const std::vector<HelpSection>& sections, const HelpStyle& style);

}  // namespace reelmesh::app
