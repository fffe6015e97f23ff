#pragma once
// What the program says on standard error. Results go to files; nothing but help, version and
// tables that the user asked for goes to standard output.
#include <fmt/format.h>

#include <string>
#include <utility>

namespace reelmesh::log {

enum class Level { debug, info, warning, error };

/// The rank that the launcher's environment gives this process, 0 where there is no launcher. For
/// use before MPI_Init only; afterwards MPI says. Under mpirun inside a Slurm batch job
/// SLURM_PROCID is 0 on all ranks, so the variables of Open MPI and PMIx are asked first.
int launch_rank();

/// The rank that speaks is 0. Until set, launch_rank() is taken.
void set_rank(int rank);
int rank();

/// Messages below this level are dropped; info from the start.
void set_level(Level level);

/// Logs a message that all ranks have: only rank 0 prints it.
void say(Level level, const std::string& message);
/// Says what happened on one rank, naming it; by default on this one.
void say_here(Level level, const std::string& message, int on_rank = rank());

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
