// The man page, from the pages of --help.
#include "man_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "commands.hpp"
#include "program.hpp"

namespace reelmesh::app {
namespace {

// Text as roff: no character has a meaning of its own, also at the beginning of a line.
std::string escaped(std::string_view text) {
  std::string roff;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i - 1] == '\n';
    if (begins && (text[i] == '.' || text[i] == '\'')) roff += "\\&";
    switch (text[i]) {
      case '\\':
        roff += "\\e";
        break;
      case '-':
        roff += "\\-";
        break;
      case '\'':
        roff += "\\(aq";
        break;
      default:
        roff += text[i];
    }
  }
  return roff;
}

// An argument of a macro.
std::string roff_word(std::string_view text) {
  std::string roff = escaped(text);
  for (std::size_t at = 0; (at = roff.find('"', at)) != roff.npos; at += 4) {
    roff.replace(at, 1, "\\(dq");
  }
  return fmt::format("\"{}\"", roff);
}

// Words that are filled, on lines of at most 78 characters.
std::string filled(std::string_view text) {
  constexpr std::size_t width = 78;
  std::istringstream words{std::string(text)};
  std::string lines;
  std::size_t column = 0;
  for (std::string next; words >> next;) {
    const std::string word = escaped(next);
    const bool fits = column + 1 + word.size() <= width;
    if (column > 0) lines += fits ? ' ' : '\n';
    column = (fits && column > 0 ? column + 1 : 0) + word.size();
    lines += word;
  }
  return lines + '\n';
}

// Paragraphs that empty lines separate.
std::string paragraphs(std::string_view text) {
  std::string roff;
  while (!text.empty()) {
    const std::size_t end = text.find("\n\n");
    if (!roff.empty()) roff += ".PP\n";
    roff += filled(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 2);
  }
  return roff;
}

// Lines as they are.
std::string verbatim(std::string_view text) { return fmt::format(".nf\n{}\n.fi\n", escaped(text)); }

std::string lines_of(const HelpSection& section) {
  std::string roff;
  for (const HelpLine& line : section.lines) {
    roff += fmt::format(".TP\n.B {}\n{}", roff_word(line.name), filled(line.description));
  }
  return roff;
}

const HelpSection& section_of(const HelpPage& page, std::string_view title) {
  return *std::ranges::find(page.sections, title, &HelpSection::title);
}

std::string part_of(const Command& command) {
  const HelpPage page = command.help();
  std::string roff =
      fmt::format(".SH {}\n{}{}", roff_word(fmt::format("reelmesh {}", command.name)),
                  paragraphs(page.purpose), ".PP\n" + verbatim(page.usage));
  if (!page.notes.empty()) roff += ".PP\n" + paragraphs(page.notes);
  for (const HelpSection& section : page.sections) {
    roff += fmt::format(".SS {}\n{}", roff_word(section.title), lines_of(section));
  }
  return roff + ".SS \"Examples\"\n" + verbatim(page.examples);
}

}  // namespace

std::string man_page() {
  const HelpPage general = general_help();
  std::string roff = fmt::format(
      ".\\\" Printed by \"reelmesh help \\-\\-man\".\n"
      ".TH REELMESH 1 \"\" \"reelmesh {}\" \"User Commands\"\n"
      ".SH NAME\nreelmesh \\- videos from diffusion transformers on any number of MPI ranks\n"
      ".SH SYNOPSIS\n.nf\n{}\n.fi\n.SH DESCRIPTION\n{}.SS \"Subcommands\"\n{}.SS \"Options\"\n{}",
      escaped(program_info().version), escaped(general.usage), paragraphs(general.purpose),
      lines_of(section_of(general, "Subcommands")), lines_of(section_of(general, "Options")));
  for (const Command& command : commands()) roff += part_of(command);
  return roff + ".SH \"EXIT STATUS\"\n" + lines_of(section_of(general, "Exit status")) +
         ".SH EXAMPLES\n" + verbatim(general.examples) +
         ".SH \"SEE ALSO\"\n.BR mpirun (1),\n.BR srun (1)\n";
}

}  // namespace reelmesh::app
