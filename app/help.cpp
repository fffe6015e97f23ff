#include "help.hpp"

#include <fmt/color.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/system.hpp"

namespace reelmesh::app {
namespace {

constexpr std::size_t indent = 2;           // spaces before a name
constexpr std::size_t max_name_width = 26;  // longer names get a separate line

// Words of a text; "[default: 42]" counts as one, unless it is longer than a line.
std::vector<std::string> split_words(const std::string& text, std::size_t width) {
  std::vector<std::string> words;
  std::istringstream parts(text);
  for (std::string part; parts >> part;) {
    const bool in_bracket = !words.empty() && words.back().starts_with('[') &&
                            words.back().find(']') == std::string::npos;
    if (in_bracket && words.back().size() + 1 + part.size() <= width) {
      words.back() += ' ' + part;
    } else {
      words.push_back(part);
    }
  }
  return words;
}

// Lines of at most `width` characters; a longer word gets a separate line.
std::vector<std::string> wrap(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string& word : split_words(text, width)) {
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (line.size() + 1 + word.size() <= width) {
      line += ' ' + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

}  // namespace

HelpStyle help_style() {
  HelpStyle style;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return style;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.columns = std::clamp<int>(size.ws_col, 60, 100);
  }
  style.bold_titles = may_style(STDOUT_FILENO);
  return style;
}

std::string format_help(const std::vector<HelpSection>& sections, const HelpStyle& style) {
  std::size_t name_width = 0;
  for (const HelpSection& section : sections) {
    for (const HelpLine& line : section.lines) {
      if (line.name.size() <= max_name_width) name_width = std::max(name_width, line.name.size());
    }
  }
  const std::size_t begin = indent + name_width + 2;
  std::string text;
  for (const HelpSection& section : sections) {
    if (!text.empty()) text += '\n';
    text += style.bold_titles ? fmt::format(fmt::emphasis::bold, "{}", section.title) + '\n'
                              : section.title + '\n';
    for (const HelpLine& line : section.lines) {
      text += fmt::format("{:{}}{}", "", indent, line.name);
      std::size_t column = indent + line.name.size();
      const std::size_t width = static_cast<std::size_t>(style.columns) - begin;
      for (const std::string& part : wrap(line.description, width)) {
        if (column + 2 > begin) {
          text += '\n';
          column = 0;
        }
        text += fmt::format("{:{}}{}", "", begin - column, part);
        column = begin + part.size();
      }
      text += '\n';
    }
  }
  return text;
}

std::string format_page(const HelpPage& page, const HelpStyle& style) {
  const std::string begin = "Usage: ";
  std::string usage = begin;
  for (const char c : page.usage) {
    usage += c;
    if (c == '\n') usage += std::string(begin.size(), ' ');
  }
  std::string text = fmt::format("{}\n\n{}\n", page.purpose, usage);
  if (!page.notes.empty()) text += fmt::format("\n{}\n", page.notes);
  if (!page.sections.empty()) text += '\n' + format_help(page.sections, style);
  std::istringstream examples(page.examples);
  text += "\nExamples\n";
  for (std::string line; std::getline(examples, line);) text += fmt::format("  {}\n", line);
  return text;
}

}  // namespace reelmesh::app
