#pragma once
// Options as given, before anybody knows what they mean: the same for the command line and for job
// files.
#include <boost/program_options/options_description.hpp>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace reelmesh::app {

struct Given {
  std::string name;   ///< "sample.steps"
  std::string value;  ///< the text behind it, without blanks at its ends where from a file
  std::string where;  ///< for messages: "--sample.steps" or "job.cfg:12: sample.steps"
};

struct CommandLine {
  std::vector<Given> options;         ///< in their order; each is one of `known`
  std::vector<std::string> operands;  ///< what is no option: "DIR"
};

/// Takes "--name value" and "--name=value", nothing else: names are not completed, and a value is
/// whatever follows, unless it is the name of an option. argv[0] is not read. Error(usage) for an
/// unknown option, with the nearest known one, and for one without a value.
CommandLine read_command_line(int argc, const char* const* argv,
                              const boost::program_options::options_description& known);

/// Reads "[section]" and "key = value" lines; empty lines and those that begin with '#' say
/// nothing. A value goes to the end of its line, '#' included. Error(usage) names file and line,
/// and for an unknown key or section the nearest of `names` ("section.key").
std::vector<Given> read_config(const std::filesystem::path& file,
                               std::span<const std::string> names);

}  // namespace reelmesh::app
