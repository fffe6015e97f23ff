#pragma once
// Messages on standard error. Results go to files; only help, version and tables that the user
// asked for go to standard output.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/launched_rank.hpp"

namespace reelmesh::log {

enum class Level { debug, info, warning, error };

/// The rank of this process from the launcher's environment variables, 0 without a launcher. Only
/// for use before MPI_Init. Under mpirun inside a Slurm batch job SLURM_PROCID is 0 on all ranks,
/// so the variables of Open MPI and PMIx are read first.
LaunchedRank launch_rank();

/// Sets the rank of this process; rank 0 prints say(). By default launch_rank().
void set_rank(LaunchedRank rank);
LaunchedRank rank();

/// Messages below this level are dropped; by default info.
void set_level(Level level);

/// Logs a message that is the same on all ranks: only rank 0 prints it. Warnings and errors are one
/// line each: see one_line(), for others printable_lines().
void say(Level level, const std::string& message);
/// Logs a message about one rank, with its number: by default this one. The caller prints it.
void say_here(Level level, const std::string& message, LaunchedRank on_rank = rank());

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  say(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  say(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
/// "reelmesh: warning: …", from rank 0.
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  say(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
/// "reelmesh: warning: rank 3: …", from whichever rank calls it.
template <class... Args>
void warning_here(fmt::format_string<Args...> format, Args&&... args) {
  say_here(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace reelmesh::log
