#include "commands.hpp"
#include "options.hpp"

namespace reelmesh::app {

Status make_model_command(int argc, const char* const* argv) {
  const MakeModelOptions options = parse_make_model(argc, argv);
  fail(Status::unavailable, "make-model: this version cannot make {} yet", options.preset);
}

}  // namespace reelmesh::app
