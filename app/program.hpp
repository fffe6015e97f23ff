#pragma once
#include <string>

#include "pipeline/run.hpp"

namespace reelmesh::app {

/// Name, version and git revision, for the results.
ProgramInfo program_info();

/// The text of `reelmesh --version`: version, revision, backends, libraries.
std::string version_text();

}  // namespace reelmesh::app
