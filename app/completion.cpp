// reelmesh completion: scripts for shells, from the pages of --help. They do not start the program,
// which takes its time on a node without its libraries in memory.
#include "completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "commands.hpp"
#include "given.hpp"

namespace reelmesh::app {
namespace {

// What may stand in one place of a command line.
struct Values {
  std::string shown;               // as the help names it: "FILE|none"; empty: a switch has none
  std::vector<std::string> words;  // "none"
  bool files = false, folders = false;

  bool any_path() const { return files || folders; }
  auto operator<=>(const Values&) const = default;
};

struct CompletedOption {
  std::string name;  // "--sample.steps"
  Values values;
  std::string description;
};

struct CompletedCommand {
  std::string name, summary;
  std::vector<CompletedOption> options;
  std::vector<Values> operands;
};

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::none_of(text, [](char c) { return c >= 'A' && c <= 'Z'; });
}

// "FILE" of "FILE[:SCALE]"
std::string_view kind_of_value(std::string_view text) {
  return text.substr(0, text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"));
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, text) != names.end();
}

Values values_of(std::string_view shown, const std::vector<std::string>& all) {
  Values values{.shown = std::string(shown), .words = all};
  while (!shown.empty()) {
    const std::size_t end = std::min(shown.find('|'), shown.size());
    const std::string_view part = shown.substr(0, end), kind = kind_of_value(part);
    if (is_word(part)) values.words.emplace_back(part);
    if (is_one_of(kind, {"FILE", "PATH", "JOB", "LORA"})) values.files = true;
    if (is_one_of(kind, {"DIR", "MODEL_DIR", "OUT"})) values.folders = true;
    shown.remove_prefix(std::min(end + 1, shown.size()));
  }
  return values;
}

void add_options(std::vector<CompletedOption>& options, const HelpPage& page) {
  for (const HelpSection& section : page.sections) {
    for (const HelpLine& line : section.lines) {
      if (!line.name.starts_with("--")) continue;
      const std::size_t end = std::min(line.name.find(' '), line.name.size());
      const std::string name = line.name.substr(0, end);
      const std::string_view shown =
          std::string_view(line.name).substr(std::min(end + 1, line.name.size()));
      if (std::ranges::find(options, name, &CompletedOption::name) != options.end()) continue;
      options.push_back({name, values_of(shown, line.values), line.description});
    }
  }
}

std::vector<CompletedCommand> completed_commands() {
  std::vector<CompletedCommand> all;
  for (const Command& command : commands()) {
    const HelpPage page = command.help();
    CompletedCommand completed{.name = std::string(command.name), .summary = command.summary};
    add_options(completed.options, page);
    if (page.has_job_options) {
      for (const char* of_job : {"run", "train"}) {
        add_options(completed.options, find_command(std::array{of_job}).help());
      }
    }
    for (const HelpLine& operand : page.operands) {
      completed.operands.push_back(values_of(operand.name, operand.values));
    }
    all.push_back(std::move(completed));
  }
  return all;
}

std::string option_names(const std::vector<CompletedOption>& options) {
  std::vector<std::string> names;
  for (const CompletedOption& option : options) names.push_back(option.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<CompletedOption> general_options() {
  std::vector<CompletedOption> options;
  add_options(options, general_help());
  return options;
}

bool has_two_words(const CompletedCommand& command) {
  return command.name.find(' ') != command.name.npos;
}

// Options without a value, of all commands.
std::set<std::string> switches(const std::vector<CompletedCommand>& all) {
  std::set<std::string> names;
  for (const CompletedCommand& command : all) {
    for (const CompletedOption& option : command.options) {
      if (option.values.shown.empty()) names.insert(option.name);
    }
  }
  return names;
}

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

// The names of all commands that have two words, quoted.
std::string names_of_two_words(const std::vector<CompletedCommand>& all, const char* between) {
  std::vector<std::string> names;
  for (const CompletedCommand& command : all) {
    if (has_two_words(command)) names.push_back(fmt::format("'{}'", command.name));
  }
  return fmt::format("{}", fmt::join(names, between));
}

// -- bash ----------------------------------------------------------------------------------------

// Assignments that the script acts upon.
std::string in_bash(const Values& values) {
  return fmt::format("files={} folders={} values='{}'", values.files ? 1 : 0,
                     values.folders ? 1 : 0, fmt::join(values.words, " "));
}

// Options with the same values are one case.
std::string bash_cases(const CompletedCommand& command) {
  std::map<Values, std::vector<std::string>> options;
  for (const CompletedOption& option : command.options) {
    if (option.values.shown.empty()) continue;
    Values values = option.values;
    values.shown.clear();
    options[values].push_back(option.name);
  }
  std::string cases;
  for (const auto& [values, names] : options) {
    cases += fmt::format("        {}) {} ;;\n", fmt::join(names, "|"), in_bash(values));
  }
  return cases;
}

std::string bash_command(const std::vector<CompletedCommand>& all,
                         const CompletedCommand& command) {
  std::string operands;
  for (std::size_t i = 0; i < command.operands.size(); ++i) {
    operands += fmt::format("        {}) {} ;;\n", i, in_bash(command.operands[i]));
  }
  std::vector<std::string> below;
  for (const CompletedCommand& other : all) {
    if (other.name.starts_with(command.name + ' ')) below.push_back(last_word(other.name));
  }
  if (!below.empty()) {
    operands += fmt::format("        0) values='{}' ;;\n", fmt::join(below, " "));
  }
  return fmt::format(
      "    '{}')\n"
      "      options='{}'\n"
      "      case $previous in\n{}"
      "        *) is_value=0 ;;\n"
      "      esac\n"
      "      ((is_value)) || case $operand in\n{}"
      "        *) ;;\n"
      "      esac ;;\n",
      command.name, option_names(command.options), bash_cases(command), operands);
}

}  // namespace

std::string bash_completion() {
  const std::vector<CompletedCommand> all = completed_commands();
  std::vector<std::string> first_words;
  std::string cases;
  for (const CompletedCommand& command : all) {
    if (!has_two_words(command)) first_words.push_back(command.name);
    cases += bash_command(all, command);
  }
  return fmt::format(
      R"bash(# Completion of reelmesh in bash; printed by "reelmesh completion bash".
_reelmesh() {{
  local at=0 i command options='' values='' files=0 folders=0 is_value=1 operand=0
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  COMPREPLY=()
  # Also of "mpirun -n 4 reelmesh ...".
  while ((at < COMP_CWORD)) && [[ ${{COMP_WORDS[at]##*/}} != reelmesh ]]; do ((++at)); done
  ((at < COMP_CWORD)) || return 0
  # "--option=value" is three words here.
  if [[ $current == = ]]; then
    current=''
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  i=$((at + 2))
  command=${{COMP_WORDS[at+1]}}
  if ((COMP_CWORD > i)); then
    case "$command ${{COMP_WORDS[i]}}" in
      {}) command+=" ${{COMP_WORDS[i]}}"; ((++i)) ;;
    esac
  fi
  ((COMP_CWORD > at + 1)) || command=''
  # How many words before this one are neither options nor values.
  for ((; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in
      {}) ;;
      --*) [[ ${{COMP_WORDS[i+1]}} == = ]] && ((++i)); ((++i)) ;;
      *) ((++operand)) ;;
    esac
  done
  case $command in
    '') options='{}' values='{}' is_value=0 ;;
{}    *) return 0 ;;
  esac
  if [[ $is_value == 0 && $current == -* ]]; then
    values=$options files=0 folders=0
  elif [[ $is_value == 0 && -z $values && $files == 0 && $folders == 0 ]]; then
    values=$options
  fi
  ((files + folders == 0)) || compopt -o filenames 2>/dev/null
  if ((files)); then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif ((folders)); then
    mapfile -t COMPREPLY < <(compgen -d -- "$current")
  fi
  mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -W "$values" -- "$current")
}}
complete -F _reelmesh reelmesh
)bash",
      names_of_two_words(all, "|"), fmt::join(switches(all), "|"), option_names(general_options()),
      fmt::join(first_words, " "), cases);
}

// -- zsh -----------------------------------------------------------------------------------------

namespace {

// In single quotes; characters of `special` are escaped before.
std::string in_quotes(std::string_view text, std::string_view special = "") {
  std::string word = "'";
  for (const char c : text) {
    if (special.find(c) != special.npos) word += '\\';
    word += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return word + '\'';
}

// ":what:action" of _arguments.
std::string zsh_values(const Values& values) {
  std::string action;
  if (values.any_path()) {
    action = fmt::format(" {} {}", values.files ? "_reelmesh_files" : "_reelmesh_folders",
                         fmt::join(values.words, " "));
  } else if (!values.words.empty()) {
    action = fmt::format("({})", fmt::join(values.words, " "));
  }
  std::string what;
  for (const char c : values.shown) what += c == ':' ? "\\:" : std::string(1, c);
  return fmt::format(":{}:{}", what, action);
}

std::string zsh_option(const CompletedOption& option) {
  std::string spec = option.name;
  if (!option.values.shown.empty()) spec += '=';
  spec += '[';
  for (const char c : option.description) {
    if (c == '[' || c == ']' || c == '\\') spec += '\\';
    spec += c;
  }
  spec += ']';
  if (!option.values.shown.empty()) spec += zsh_values(option.values);
  return in_quotes('*' + spec);  // some options may be repeated
}

std::string zsh_command(const std::vector<CompletedCommand>& all, const CompletedCommand& command) {
  std::string arguments;
  for (const CompletedOption& option : command.options) {
    arguments += fmt::format(" \\\n        {}", zsh_option(option));
  }
  for (std::size_t i = 0; i < command.operands.size(); ++i) {
    arguments += fmt::format(
        " \\\n        {}", in_quotes(fmt::format("{}{}", i + 1, zsh_values(command.operands[i]))));
  }
  std::string below;
  for (const CompletedCommand& other : all) {
    if (!other.name.starts_with(command.name + ' ')) continue;
    below += ' ' + in_quotes(fmt::format("{}:{}", last_word(other.name), other.summary));
  }
  const std::string before = below.empty()
                                 ? ""
                                 : fmt::format(
                                       "      commands=({})\n"
                                       "      ((CURRENT == 2)) && _describe command commands\n",
                                       below);
  return fmt::format("    {})\n{}      _arguments{} ;;\n", in_quotes(command.name), before,
                     arguments);
}

}  // namespace

std::string zsh_completion() {
  const std::vector<CompletedCommand> all = completed_commands();
  std::string first_words, cases, options;
  for (const CompletedCommand& command : all) {
    cases += zsh_command(all, command);
    if (has_two_words(command)) continue;
    first_words += "\n      " + in_quotes(fmt::format("{}:{}", command.name, command.summary));
  }
  for (const CompletedOption& option : general_options()) {
    options += ' ' + zsh_option(option);
  }
  return fmt::format(
      R"zsh(#compdef reelmesh
# Completion of reelmesh in zsh; printed by "reelmesh completion zsh".
_reelmesh_files() {{
  _files
  compadd -- "$@"
}}
_reelmesh_folders() {{
  _files -/
  compadd -- "$@"
}}
_reelmesh() {{
  local -a commands
  local command=$words[2]
  if ((CURRENT == 2)); then
    commands=({}
    )
    if [[ $command == -* ]]; then
      _arguments{}
    else
      _describe command commands
    fi
    return
  fi
  shift words
  ((CURRENT--))
  if ((CURRENT > 2)); then
    case "$command $words[2]" in
      {})
        command+=" $words[2]"
        shift words
        ((CURRENT--)) ;;
    esac
  fi
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _reelmesh ]]; then
  _reelmesh "$@"
else
  compdef _reelmesh reelmesh
fi
)zsh",
      first_words, options, names_of_two_words(all, "|"), cases);
}

// -- fish ----------------------------------------------------------------------------------------

namespace {

std::string fish_values(const Values& values) {
  if (values.shown.empty()) return "";
  std::string text = values.any_path() ? " -r" : " -x";
  if (values.files) text += " -F";
  std::string words = fmt::format("{}", fmt::join(values.words, " "));
  if (values.folders && !values.files) {
    text = " -x";
    words += std::string(words.empty() ? "" : " ") + "(__fish_complete_directories)";
  }
  if (!words.empty()) text += " -a " + in_quotes(words, "\\");
  return text;
}

}  // namespace

std::string fish_completion() {
  const std::vector<CompletedCommand> all = completed_commands();
  std::string lines;
  const auto add = [&](const std::string& command, const std::string& rest) {
    lines += fmt::format("complete -c reelmesh -n '__reelmesh_is \"{}\"'{}\n", command, rest);
  };
  const auto add_option = [&](const std::string& command, const CompletedOption& option) {
    add(command, fmt::format(" -l {} -d {}{}", option.name.substr(2),
                             in_quotes(option.description, "\\"), fish_values(option.values)));
  };
  for (const CompletedOption& option : general_options()) add_option("", option);
  for (const CompletedCommand& command : all) {
    const std::size_t space = command.name.find(' ');
    const std::string above = space == command.name.npos ? "" : command.name.substr(0, space);
    add(above,
        fmt::format(" -a {} -d {}", last_word(command.name), in_quotes(command.summary, "\\")));
    for (const CompletedOption& option : command.options) add_option(command.name, option);
    for (std::size_t i = 0; i < command.operands.size(); ++i) {
      Values values = command.operands[i];
      const std::string text = fish_values(values);
      const std::string paths = values.files ? " -F" : "";
      const std::size_t words = text.find(" -a ");
      add(fmt::format("{}\" \"{}", command.name, i),
          paths + (words == text.npos ? "" : text.substr(words)));
    }
  }
  return fmt::format(
      R"fish(# Completion of reelmesh in fish; printed by "reelmesh completion fish".
# __reelmesh_is COMMAND [N]: the words are of this command, and N of them are neither options nor values.
function __reelmesh_is
    set -l words (commandline -opc)
    set -e words[1]
    set -l command "$words[1]"
    set -e words[1]
    switch "$command $words[1]"
        case {}
            set command "$command $words[1]"
            set -e words[1]
    end
    test "$command" = "$argv[1]"; or return 1
    set -q argv[2]; or return 0
    set -l operands 0
    set -l is_value 0
    for word in $words
        if test $is_value = 1
            set is_value 0
        else if string match -q -- '--*=*' $word; or contains -- $word {}
        else if string match -q -- '--*' $word
            set is_value 1
        else
            set operands (math $operands + 1)
        end
    end
    test $is_value = 0 -a $operands = $argv[2]
end
complete -c reelmesh -f
{})fish",
      names_of_two_words(all, " "), fmt::join(switches(all), " "), lines);
}

namespace {

struct Shell {
  const char* name;
  std::string (*script)();
};
constexpr std::array<Shell, 3> shells{
    {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}}};

}  // namespace

HelpPage completion_help() {
  std::vector<std::string> names;
  for (const Shell& shell : shells) names.emplace_back(shell.name);
  return {
      .purpose = "Prints a script with which a shell completes subcommands, options and values.",
      .usage = fmt::format("reelmesh completion {}", fmt::join(names, "|")),
      .notes =
          "An installation has these scripts where the shells look for them. Otherwise a line\n"
          "of ~/.bashrc loads them; with the second one they serve after mpirun, too.",
      .sections = {{"Options", {{"--help", "print this text"}}}},
      .examples =
          "source <(reelmesh completion bash)\n"
          "complete -o default -F _reelmesh reelmesh mpirun srun\n"
          "reelmesh completion zsh > ~/.zfunc/_reelmesh\n"
          "reelmesh completion fish > ~/.config/fish/completions/reelmesh.fish",
      .operands = {{fmt::format("{}", fmt::join(names, "|")), "", {}}}};
}

Status completion_command(int argc, const char* const* argv) {
  const CommandLine line = read_command_line(argc, argv, {});
  require(line.operands.size() == 1, Status::usage, "found {} arguments, expected a shell: {}",
          line.operands.size(), completion_help().operands.front().name);
  const auto* const found = std::ranges::find(shells, line.operands.front(),
                                              [](const Shell& s) { return std::string(s.name); });
  require(found != shells.end(), Status::usage, "unknown shell '{}', expected one of {}",
          line.operands.front(), completion_help().operands.front().name);
  return print_once(found->script());
}

}  // namespace reelmesh::app
