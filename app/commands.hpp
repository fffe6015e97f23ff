#pragma once
// The subcommands. argv[0] is the last word of the subcommand's name; errors are thrown.
#include "base/error.hpp"

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

}  // namespace reelmesh::app
