#pragma once
// The subcommands. argv[0] is the last word of the subcommand's name; errors are thrown.
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "help.hpp"

namespace reelmesh::app {

Status run_command(int argc, const char* const* argv);
Status train_command(int argc, const char* const* argv);
Status plan_command(int argc, const char* const* argv);
Status compare_command(int argc, const char* const* argv);
Status simulate_command(int argc, const char* const* argv);
Status calibrate_command(int argc, const char* const* argv);
Status correct_command(int argc, const char* const* argv);
Status inspect_command(int argc, const char* const* argv);
Status make_model_command(int argc, const char* const* argv);
Status completion_command(int argc, const char* const* argv);
Status help_command(int argc, const char* const* argv);

struct Command {
  std::string_view name;  ///< "run", "plan compare"
  const char* summary;
  HelpPage (*help)();
  Status (*run)(int argc, const char* const* argv);
};

/// In the order of --help.
std::span<const Command> commands();
/// By the first words of a command line: "plan compare", or "run". Error(usage) if there is none.
const Command& find_command(std::span<const char* const> words);

/// Of the whole program.
HelpPage general_help();

/// Without MPI_Init; under mpirun only one rank prints. Error(io).
Status print_once(const std::string& text);

}  // namespace reelmesh::app
