// Parses job files. Boost's parser ends values at '#', which may be part of a prompt.
#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "given.hpp"
#include "job/other_names.hpp"
#include "text_file.hpp"

namespace reelmesh::app {
namespace {

std::vector<std::string> section_names(std::span<const std::string> names) {
  std::vector<std::string> sections;
  for (const std::string& name : names) {
    const std::string section = name.substr(0, name.find('.'));
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return sections;
}

}  // namespace

std::vector<Given> read_config(const std::filesystem::path& file, const std::string& option,
                               std::span<const std::string> names) {
  const std::vector<std::string> sections = section_names(names);
  std::vector<Given> givens;
  std::string section;
  int number = 0;
  for (const std::string& whole : read_lines(file, option)) {
    const std::string where = fmt::format("{}:{}", file.string(), ++number);
    const std::string_view line = trimmed(whole);
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = trimmed(line.substr(1, line.size() - 2));
      if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
        fail(Status::usage, "{}: unknown section [{}]{}", where, section,
             hint_of_section(section, sections));
      }
      continue;
    }
    const std::size_t equals = line.find('=');
    require(equals != std::string_view::npos && equals > 0, Status::usage,
            "{}: found '{}', expected '[section]', 'key = value' or '# comment'", where, line);
    const std::string key(trimmed(line.substr(0, equals)));
    // Above the first section, keys are given by their full names.
    const std::string name = section.empty() ? key : section + "." + key;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail(Status::usage, "{}: unknown key {}{}", where, name, hint(name, names));
    }
    givens.push_back({.name = name,
                      .value = std::string(trimmed(line.substr(equals + 1))),
                      .where = where + ": " + name});
  }
  return givens;
}

}  // namespace reelmesh::app
