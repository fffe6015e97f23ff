#pragma once
// Compares what a job is predicted to take of its hosts with the memory that they have.
#include "comm/group.hpp"
#include "plan/memory_plan.hpp"

namespace reelmesh {

/// Bytes that the ranks of this host may use together: its physical memory, or less if a cgroup
/// (version 1 or 2: a container, a Slurm job) has a lower limit; and the same with swap.
struct HostMemory {
  std::int64_t physical = 0;
  std::int64_t with_swap = 0;
};
HostMemory host_memory();

/// Bytes that processes may still take of this host, swap included: what Linux says is available,
/// or what the cgroup leaves, which is negative if its limit was lowered below what is in use.
std::int64_t available_host_memory();
/// Bytes of this process that are in memory now.
std::int64_t resident_bytes();

/// Compares the predicted memory of all ranks of a host, of those with GPUs what they take of the
/// host, with host_memory(): more than `physical` is
/// a warning, more than 1.1 times `with_swap` is Error(unavailable) on all ranks. So is a limit of
/// address space (ulimit -v) or data (ulimit -d) on a rank below what it uses now and will need:
/// its predicted memory, the stacks of its threads and a margin. world: in plan order. Collective.
void require_host_memory(const comm::Group& world, const MemoryPlan& memory, int threads);

/// Before MPI_Init: Error(unavailable) if a limit of address space or data leaves too little to
/// start MPI. With a limit, all threads share one arena of malloc.
void require_memory_to_start();

}  // namespace reelmesh
