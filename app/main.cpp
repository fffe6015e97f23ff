// reelmesh SUBCOMMAND …: finds the subcommand, says what failed once, and gives the exit status.
#include <array>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/report.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "nearest.hpp"
#include "options.hpp"
#include "program.hpp"

namespace reelmesh::app {
namespace {

struct Command {
  std::string_view name;
  const char* usage;
  const char* summary;
  std::string (*help)();
  Status (*run)(int argc, const char* const* argv);
};

constexpr std::array<Command, 4> commands{{
    {"run", "run [--config FILE] [--section.key value ...]", "makes the clips of a job", run_help,
     run_command},
    {"plan", "plan [the same options] --ranks N [...]",
     "says what run would do, and what does not fit", plan_help, plan_command},
    {"inspect", "inspect MODEL_DIR", "says what a checkpoint holds", inspect_help, inspect_command},
    {"make-model", "make-model PRESET DIR", "writes a checkpoint with random weights",
     make_model_help, make_model_command},
}};

std::string general_help() {
  Table table;
  for (const Command& command : commands) {
    table.row({fmt::format("  reelmesh {:<46} {}", command.usage, command.summary)});
  }
  return "Videos from text with diffusion transformers, on any number of MPI ranks.\n\n" +
         table.str() +
         "  reelmesh --version\n"
         "  reelmesh --help, reelmesh SUBCOMMAND --help\n\n"
         "One rank a group of cores: mpirun -n N reelmesh run ..., or srun in a Slurm job.\n";
}

const Command& find_command(std::string_view name) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name == name) return command;
    names.emplace_back(command.name);
  }
  fail(Status::usage, "unknown subcommand '{}'; the nearest known one is {} (see reelmesh --help)",
       name, nearest(name, names));
}

// Help and version need no MPI_Init; under mpirun one rank prints them.
Status print(const std::string& text) {
  if (log::launch_rank() == 0) std::cout << text << std::flush;
  return Status::ok;
}

Status dispatch(int argc, const char* const* argv) {
  require(argc >= 2, Status::usage, "a subcommand is missing (see reelmesh --help)");
  const std::string_view first = argv[1];
  if (first == "--help" || first == "help") return print(general_help());
  if (first == "--version") return print(version_text());
  const Command& command = find_command(first);
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help") return print(command.help());
  }
  return command.run(argc - 1, argv + 1);
}

}  // namespace
}  // namespace reelmesh::app

int main(int argc, char** argv) {
  using namespace reelmesh;
  try {
    return static_cast<int>(app::dispatch(argc, argv));
  } catch (...) {
    // All ranks have this error: one reports it and exits first, before mpirun ends the others.
    const app::Failure failure = app::current_failure();
    log::say(log::Level::error, failure.message);
    app::let_lower_ranks_speak(log::rank());
    return static_cast<int>(failure.status);
  }
}
