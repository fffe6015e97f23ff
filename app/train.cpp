#include "train/train.hpp"

#include "commands.hpp"
#include "job_command.hpp"
#include "options.hpp"

namespace reelmesh::app {

Status train_command(int argc, const char* const* argv) {
  const auto parse = [&](const OptionsKnown& known) {
    Job job = parse_train(argc, argv);
    known(job);
    return job;
  };
  return parse_and_do(parse, train::train);
}

}  // namespace reelmesh::app
