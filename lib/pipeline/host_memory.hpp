#pragma once
// Memory of the host, and whether a job on CPUs fits it.
#include "comm/group.hpp"
#include "plan/memory.hpp"

namespace reelmesh::pipeline {

/// Bytes that the ranks of this host may use together: its physical memory, or less if a cgroup
/// (version 1 or 2: a container, a Slurm job) has a lower limit; and the same with swap.
struct HostMemory {
  std::int64_t physical = 0;
  std::int64_t with_swap = 0;
};
HostMemory host_memory();

/// Compares the predicted memory of the ranks of each host, and of each rank with its limit of
/// address space (RLIMIT_AS), with what there is. A prediction that exceeds physical memory is a
/// warning; one that exceeds it by a tenth, swap included, is Error(unavailable), on all ranks.
/// world: in plan order. Collective.
void require_host_memory(const comm::Group& world, const MemoryPlan& memory);

}  // namespace reelmesh::pipeline
