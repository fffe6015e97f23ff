#pragma once
// main() of benchmarks that run under mpirun.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh {

/// Runs bench(arguments) with MPI initialised. An exception is printed with the usage text and ends
/// all ranks with Status::usage.
template <class Bench>
int bench_main(int argc, char** argv, Bench&& bench, const char* usage) {
  const comm::Environment mpi;
  try {
    bench(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\nusage: " << usage << '\n';
    comm::abort_all(Status::usage);
  }
  return 0;
}

}  // namespace reelmesh
