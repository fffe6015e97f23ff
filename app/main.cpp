// reelmesh SUBCOMMAND …: calls the subcommand, reports a failure once, returns the exit status.
#include <chrono>
#include <csignal>
#include <iostream>
#include <span>
#include <string_view>
#include <thread>

#include "base/log.hpp"
#include "comm/group.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "program.hpp"

namespace reelmesh::app {
namespace {

Status dispatch(int argc, const char* const* argv) {
  require(argc >= 2, Status::usage,
          "a subcommand is missing, expected run, train, plan, inspect or make-model (see reelmesh "
          "--help)");
  const std::string_view first = argv[1];
  const std::span words(argv + 1, argv + argc);
  const auto help = [](const HelpPage& page) {
    return print_once(format_page(page, help_style()));
  };
  if (first == "--help" || first == "-h") return help(general_help());
  if (first == "--version") return print_once(version_text());
  const Command& command = find_command(words);
  const int own = command.name.find(' ') == std::string_view::npos ? 1 : 2;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h") return help(command.help());
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
