#pragma once
// The text of --help.
#include <string>
#include <vector>

namespace reelmesh::app {

struct HelpLine {
  std::string name;         ///< "--sample.steps N"
  std::string description;  ///< wrapped at spaces
};

struct HelpSection {
  std::string title;
  std::vector<HelpLine> lines;
};

/// Line width and markup of the output.
struct HelpStyle {
  int columns = 80;
  bool bold_titles = false;
};

/// The style for standard output: the terminal's width, limited to 60 to 100 columns; 80 without a
/// terminal. Titles are bold on a terminal, unless NO_COLOR is set (https://no-color.org) or under
/// mpirun, where standard output may be a file although isatty() is true.
HelpStyle help_style();

/// Each section: its title, then names and descriptions in two columns. If a name is too long for
/// its column, the description starts on the next line.
std::string format_help(const std::vector<HelpSection>& sections, const HelpStyle& style);

}  // namespace reelmesh::app
