#include "commands.hpp"
#include "options.hpp"

namespace reelmesh::app {

Status inspect_command(int argc, const char* const* argv) {
  const InspectOptions options = parse_inspect(argc, argv);
  fail(Status::unavailable, "inspect: this version cannot look into {} yet",
       options.model.string());
}

}  // namespace reelmesh::app
