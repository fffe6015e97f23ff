#pragma once
// What a rank learns of the machine under it.
#include <optional>
#include <string>

#include "comm/group.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/numerics.hpp"

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

/// Where this rank computes, by its number among those of its host (device_of_rank). All ranks are
/// of one kind: with Backend::automatic they are on the host unless all have a GPU, which is said
/// where some do. Collective.
Device find_device(const comm::Group& world, Backend backend);

/// Of every rank of the world: bytes that it may use of its GPU, which is what nobody uses yet,
/// shared equally among the ranks that compute there. Empty on the host. Collective.
std::vector<std::int64_t> free_memory_of_ranks(const comm::Group& world, Device device);

/// Of every rank of the world: equal numbers for ranks of one node, as MPI sees them. Collective.
std::vector<int> nodes_of(const comm::Group& world);

/// Of every rank of the world: how many matrix products of `dtype` it does in the same time, all
/// ranks at once for about a quarter of a second; the fastest has 1. To steps of 1/16, so that
/// ranks alike are taken as such. Collective.
std::vector<double> measure_speeds(const comm::Group& world, DType dtype, Device device,
                                   const Numerics& numerics);

std::int64_t peak_memory_bytes();  ///< largest resident size so far

}  // namespace reelmesh::pipeline
