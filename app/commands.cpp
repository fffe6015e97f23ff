// The table of subcommands, and `reelmesh help`.
#include "commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <vector>

#include "base/log.hpp"
#include "base/nearest.hpp"
#include "completion.hpp"
#include "man_page.hpp"
#include "options.hpp"
#include "plan_options.hpp"

namespace reelmesh::app {
namespace {

HelpPage help_help();

constexpr std::array<Command, 11> table{{
    {"run", "make the clips of a job", run_help, run_command},
    {"train", "train a LoRA, or all weights, on videos with captions", train_help, train_command},
    {"plan", "print the layout, memory and messages of a job on N ranks without running it",
     plan_help, plan_command},
    {"plan compare", "print the layouts of a job beside one another, by their times", compare_help,
     compare_command},
    {"plan simulate", "play a job with predicted times, for reelmesh-report", simulate_help,
     simulate_command},
    {"plan calibrate", "measure this machine and write a machine file", calibrate_help,
     calibrate_command},
    {"plan correct", "compare a job with its prediction, and correct a machine file by it",
     correct_help, correct_command},
    {"inspect", "print what a checkpoint holds, and what is missing or invalid", inspect_help,
     inspect_command},
    {"make-model", "write a checkpoint with random weights, for tests and measurements",
     make_model_help, make_model_command},
    {"completion", "print what completes these words and options in a shell", completion_help,
     completion_command},
    {"help", "print the help of a subcommand, or the man page", help_help, help_command},
}};

// "plan" also for the commands beside it.
std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Command& command : table) {
    if (command.name.find(' ') == command.name.npos) words.emplace_back(command.name);
  }
  return words;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : table) names.emplace_back(command.name);
  return names;
}

HelpPage help_help() {
  return {.purpose = "Prints the help of the program, or of a subcommand.",
          .usage =
              "reelmesh help [SUBCOMMAND]\n"
              "reelmesh help --man",
          .notes = {},
          .sections = {{"Options",
                        {{"--man", "print the man page of all subcommands, for man"},
                         {"--help", "print this text"}}}},
          .examples =
              "reelmesh help plan compare\n"
              "reelmesh help --man | man -l -",
          .operands = {{"SUBCOMMAND", "", first_words()}}};
}

}  // namespace

std::span<const Command> commands() { return table; }

const Command& find_command(std::span<const char* const> words) {
  std::string name = words.front();
  const auto is_below = [&](const Command& command) {
    return command.name.starts_with(name + ' ');
  };
  if (words.size() > 1 && *words[1] != '-' && std::ranges::any_of(table, is_below)) {
    name += fmt::format(" {}", words[1]);
  }
  const auto* const found = std::ranges::find(table, name, &Command::name);
  require(found != table.end(), Status::usage, "unknown subcommand '{}'{} (see reelmesh --help)",
          name, did_you_mean("", nearest(name, command_names())));
  return *found;
}

HelpPage general_help() {
  std::vector<HelpSection> sections{
      {"Subcommands", {}},
      {"Options",
       {{"--help", "print this text; SUBCOMMAND --help, or help SUBCOMMAND, that of one"},
        {"--version", "print version, git revision, backends and libraries"}}},
      {"Exit status",
       {{"0", "all clips are complete, or the training is"},
        {"64", "wrong option"},
        {"65", "invalid file, such as a damaged checkpoint"},
        {"66", "missing input"},
        {"69", "the job does not fit the ranks, their memory or their devices"},
        {"70", "internal error"},
        {"73", "output cannot be created"},
        {"74", "reading or writing failed"},
        {"75", "stopped on request, saved; run again to go on"},
        {"76", "a rank is lost or hangs"}}}};
  for (const Command& command : table) {
    sections[0].lines.push_back({std::string(command.name), command.summary});
  }
  return {
      .purpose = "Makes videos from text with diffusion transformers on any number of MPI ranks.",
      .usage =
          "mpirun -n N reelmesh run [OPTIONS]       one rank per GPU, or group of cores\n"
          "reelmesh SUBCOMMAND [OPTIONS]",
      .notes = {},
      .sections = sections,
      .examples =
          "reelmesh inspect models/CogVideoX-2b\n"
          "reelmesh plan --model.path models/CogVideoX-2b --ranks 6\n"
          "mpirun -n 6 reelmesh run --model.path models/CogVideoX-2b --output.path out \\\n"
          "    --prompt.text 'A red fox walks through snow'"};
}

Status help_command(int argc, const char* const* argv) {
  const std::span words(argv + 1, argv + argc);
  if (words.empty()) return print_once(format_page(general_help(), help_style()));
  if (std::string_view(words.front()) == "--man") {
    require(words.size() == 1, Status::usage, "unexpected argument '{}' after --man",
            words.size() == 1 ? "" : words[1]);
    return print_once(man_page());
  }
  return print_once(format_page(find_command(words).help(), help_style()));
}

Status print_once(const std::string& text) {
  if (log::launch_rank() != first_rank) return Status::ok;
  require(static_cast<bool>(std::cout << text << std::flush), Status::io,
          "standard output cannot be written");
  return Status::ok;
}

}  // namespace reelmesh::app
