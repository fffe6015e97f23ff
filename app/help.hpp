#pragma once
// What --help says, from which the man page and completion are made as well.
#include <string>
#include <vector>

namespace reelmesh::app {

struct HelpLine {
  /// "--sample.steps N". After the option stand the values that it takes: "auto|split|phased", or
  /// what they are, in capitals, such as "FILE|none".
  std::string name;
  std::string description;          ///< wrapped at spaces
  std::vector<std::string> values;  ///< all that there are, if the name does not tell
};

struct HelpSection {
  std::string title;
  std::vector<HelpLine> lines;
};

/// The help of a subcommand. Texts are lines, without one at their end; paragraphs are separated by
/// an empty line.
struct HelpPage {
  std::string purpose;
  std::string usage;  ///< of one call each, or of its further lines, which are indented
  std::string notes;
  std::vector<HelpSection> sections;
  std::string examples;
  std::vector<HelpLine> operands;  ///< arguments that are not options, in their order
  bool has_job_options = false;    ///< those of run and train as well, which the page does not list
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
/// As --help prints it.
std::string format_page(const HelpPage& page, const HelpStyle& style);

}  // namespace reelmesh::app
