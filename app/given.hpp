#pragma once
// Options as text, before their values are parsed; common to the command line and job files.
#include <boost/program_options/options_description.hpp>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "job/values.hpp"

namespace reelmesh::app {

struct CommandLine {
  std::vector<Given> options;         ///< in the given order; each is one of `known`
  std::vector<std::string> operands;  ///< arguments that are not options: "DIR"
};

/// Accepts only "--name value" and "--name=value". Names must be complete. A value is the next
/// word, unless it is the name of an option. argv[0] is ignored. Error(usage) for an unknown
/// option, with a suggestion, and for an option without a value.
CommandLine read_command_line(int argc, const char* const* argv,
                              const boost::program_options::options_description& known);

/// Reads "[section]" and "key = value" lines; empty lines and lines that begin with '#' are
/// skipped. A value extends to the end of its line, including any '#'. Error(usage) with file and
/// line, and for an unknown key or section with a suggestion from `names` ("section.key").
/// option: with which the file was given, for messages.
std::vector<Given> read_config(const std::filesystem::path& file, const std::string& option,
                               std::span<const std::string> names);

}  // namespace reelmesh::app
