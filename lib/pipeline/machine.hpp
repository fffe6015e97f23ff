#pragma once
// What a rank learns of the machine under it.
#include <optional>
#include <string>

#include "comm/group.hpp"
#include "tensor/dtype.hpp"

namespace reelmesh::pipeline {

struct Machine {
  std::string host;
  int cores = 1;       ///< that this rank may run on
  int sharing = 1;     ///< ranks of this host that may run on the same cores
  int host_cores = 1;  ///< of the host that are online
  int host_ranks = 1;
};

/// Collective over `world`.
Machine find_machine(const comm::Group& world);

/// Sets the threads of this rank: as asked for, or OMP_NUM_THREADS, or the cores it may use divided
/// by the ranks that share them. Warns where the launcher bound ranks so that most cores stay idle.
int set_threads(const Machine& machine, const std::optional<int>& asked);

/// Of every rank of the world: equal numbers for ranks of one node, as MPI sees them. Collective.
std::vector<int> nodes_of(const comm::Group& world);

/// Of every rank of the world: how many matrix products of `dtype` it does in the same time, all
/// ranks at once for about a quarter of a second; the fastest has 1. To steps of 1/16, so that
/// ranks alike are taken as such. Collective.
std::vector<double> measure_speeds(const comm::Group& world, DType dtype);

/// While it lives, large blocks have pages of their own, so that what is needed for loading alone
/// goes back at once and leaves no holes among the weights.
class BlocksOfTheirOwn {
 public:
  BlocksOfTheirOwn();
  ~BlocksOfTheirOwn();
  BlocksOfTheirOwn(const BlocksOfTheirOwn&) = delete;
  BlocksOfTheirOwn& operator=(const BlocksOfTheirOwn&) = delete;
};

/// Free blocks go back to the system, so that the next stage's memory is its own.
void return_free_memory();

std::int64_t peak_memory_bytes();  ///< largest resident size so far

}  // namespace reelmesh::pipeline
