#pragma once
#include "comm/group.hpp"

namespace reelmesh::test {

/// The group of ranks that the current test runs on; support/mpi_main.cpp divides the launch.
const comm::Group& world();

}  // namespace reelmesh::test
