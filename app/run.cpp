#include "pipeline/run.hpp"

#include "commands.hpp"
#include "job_command.hpp"
#include "options.hpp"

namespace reelmesh::app {

Status run_command(int argc, const char* const* argv) {
  return parse_and_do([&](const OptionsKnown& known) { return parse_run(argc, argv, known); },
                      [](auto&&... given) { return pipeline::run(given...); });
}

}  // namespace reelmesh::app
