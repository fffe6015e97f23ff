// reelmesh SUBCOMMAND …: calls the subcommand, reports a failure once, returns the exit status.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/nearest.hpp"
#include "comm/group.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "help.hpp"
#include "options.hpp"
#include "plan_options.hpp"
#include "program.hpp"

namespace reelmesh::app {
namespace {

struct Command {
  std::string_view name;
  const char* summary;
  std::string (*help)();
  Status (*run)(int argc, const char* const* argv);
};

constexpr std::array<Command, 9> commands{{
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
}};

std::string general_help() {
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
  for (const Command& command : commands) {
    sections[0].lines.push_back({std::string(command.name), command.summary});
  }
  return "Makes videos from text with diffusion transformers on any number of MPI ranks.\n\n"
         "Usage: mpirun -n N reelmesh run [OPTIONS]       one rank per GPU, or group of cores\n"
         "       reelmesh SUBCOMMAND [OPTIONS]\n\n" +
         format_help(sections, help_style()) +
         "\nExamples\n"
         "  reelmesh inspect models/CogVideoX-2b\n"
         "  reelmesh plan --model.path models/CogVideoX-2b --ranks 6\n"
         "  mpirun -n 6 reelmesh run --model.path models/CogVideoX-2b --output.path out \\\n"
         "      --prompt.text 'A red fox walks through snow'\n";
}

// By the first words of a command line: "plan compare", or "run".
const Command& find_command(std::span<const char* const> words) {
  std::string name = words.front();
  const auto is_below = [&](const Command& command) {
    return command.name.starts_with(name + ' ');
  };
  if (words.size() > 1 && *words[1] != '-' && std::ranges::any_of(commands, is_below)) {
    name += fmt::format(" {}", words[1]);
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name == name) return command;
    names.emplace_back(command.name);
  }
  fail(Status::usage, "unknown subcommand '{}'{} (see reelmesh --help)", name,
       did_you_mean("", nearest(name, names)));
}

// Prints without MPI_Init; under mpirun only one rank prints.
Status print_once(const std::string& text) {
  if (log::launch_rank() != first_rank) return Status::ok;
  require(static_cast<bool>(std::cout << text << std::flush), Status::io,
          "standard output cannot be written");
  return Status::ok;
}

Status dispatch(int argc, const char* const* argv) {
  require(argc >= 2, Status::usage,
          "a subcommand is missing, expected run, train, plan, inspect or make-model (see reelmesh "
          "--help)");
  const std::string_view first = argv[1];
  const std::span words(argv + 1, argv + argc);
  if (first == "help" && argc > 2) return print_once(find_command(words.subspan(1)).help());
  if (first == "--help" || first == "-h" || first == "help") return print_once(general_help());
  if (first == "--version") return print_once(version_text());
  const Command& command = find_command(words);
  const int own = command.name.find(' ') == std::string_view::npos ? 1 : 2;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h") return print_once(command.help());
  }
  const Status status = command.run(argc - own, argv + own);
  require(static_cast<bool>(std::cout.flush()), Status::io, "standard output cannot be written");
  return status;
}

}  // namespace
}  // namespace reelmesh::app

int main(int argc, char** argv) {
  using namespace reelmesh;
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the largest file (ulimit -f) fails instead
  try {
    return static_cast<int>(app::dispatch(argc, argv));
  } catch (...) {
    // Usually all ranks have this error: one reports it and exits first, before mpirun ends the
    // others. An error with a rank may be that of this rank only.
    const app::Failure failure = app::current_failure();
    log::say(app::failure_level(failure), failure.message);
    comm::join_launch();
    app::wait_for_lower_ranks();
    if (failure.rank && log::rank() != first_rank) {
      std::this_thread::sleep_for(std::chrono::seconds(5));  // a busy mpirun needs some time
      log::say_here(app::failure_level(failure), failure.message, *failure.rank);
    }
    return static_cast<int>(failure.status);
  }
}
