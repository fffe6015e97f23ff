#include <algorithm>
#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>

#include "base/error.hpp"
#include "given.hpp"
#include "job/other_names.hpp"

namespace reelmesh::app {
namespace po = boost::program_options;
namespace {

std::vector<std::string> known_names(const po::options_description& known) {
  std::vector<std::string> names;
  for (const auto& option : known.options()) names.push_back(option->long_name());
  return names;
}

// "--steps=5" → "steps"; empty if the word is not a long option.
std::string option_name(const std::string& word) {
  if (!word.starts_with("--")) return "";
  return word.substr(2, word.find('=') == std::string::npos ? word.npos : word.find('=') - 2);
}

}  // namespace

CommandLine read_command_line(int argc, const char* const* argv,
                              const po::options_description& known) {
  namespace style = po::command_line_style;
  const std::vector<std::string> names = known_names(known);
  CommandLine line;
  try {
    // Names must be complete: by default Boost accepts --sample.ste for --sample.steps. Short
    // options are disabled, so that "-1" is parsed as a value and reaches the range check of its
    // option.
    const auto parsed =
        po::command_line_parser(argc, argv)
            .options(known)
            .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
            .allow_unregistered()
            .run();
    for (const po::option& option : parsed.options) {
      if (option.unregistered) {
        const std::string name = option_name(option.original_tokens.at(0));
        fail(Status::usage, "unknown option --{}{}", name, hint(name, names, "--"));
      }
      if (option.string_key.empty()) {
        line.operands.insert(line.operands.end(), option.value.begin(), option.value.end());
      } else {
        const std::string value = option.value.empty() ? "yes" : option.value.front();  // a switch
        // "--sample.steps --sample.seed 1": Boost parses the next option as the value.
        const bool swallowed =
            option.original_tokens.size() > 1 &&
            std::find(names.begin(), names.end(), option_name(value)) != names.end();
        require(!swallowed, Status::usage, "--{}: found no value, expected one", option.string_key);
        line.options.push_back(
            {.name = option.string_key, .value = value, .where = "--" + option.string_key});
      }
    }
  } catch (const po::error_with_option_name& error) {
    fail(Status::usage, "--{}: found no value, expected one", option_name(error.get_option_name()));
  } catch (const po::error& error) {
    fail(Status::usage, "{}", error.what());
  }
  return line;
}

}  // namespace reelmesh::app
