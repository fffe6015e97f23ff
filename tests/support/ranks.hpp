#pragma once
#include "comm/group.hpp"

namespace reelmesh::test {

/// The ranks that the tests run on: one of the groups into which mpi_main divides the launch.
const comm::Group& world();

}  // namespace reelmesh::test
