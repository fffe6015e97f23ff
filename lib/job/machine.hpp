#pragma once
// What a rank finds out about its machine.
#include <optional>
#include <string>

#include "comm/group.hpp"
#include "job/job.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/numerics.hpp"

namespace reelmesh {

struct Machine {
  std::string host;
  int cores = 1;       ///< in this rank's CPU affinity mask
  int sharing = 1;     ///< ranks of this host with the same affinity mask, this one included
  int host_cores = 1;  ///< online on this host
  int host_ranks = 1;  ///< ranks on this host
};

/// Collective over `world`.
Machine find_machine(const comm::Group& world);

/// Sets the number of OpenMP threads of this rank: `asked`, else OMP_NUM_THREADS, else its cores
/// divided by the ranks that share them. Warns if mpirun bound ranks such that most cores are idle.
/// → the number of threads.
int set_threads(const Machine& machine, const std::optional<int>& asked);

/// The device of this rank, by its index among the ranks of its host. Errors as device_of_rank and
/// require_kernels. Either all ranks use a GPU or all use the CPU: if some have none, all use the
/// CPU, and those with a GPU warn. Collective.
Device find_device(const comm::Group& world, Backend backend);

/// Logs a warning if a job computes in float32 on GPUs and neither its command line nor an earlier
/// job says so.
void warn_of_float32(const Job& job, bool on_gpu);

/// The number of multiprocessors of each rank's GPU, the maximum where they differ, as the last
/// find_device() has found it; 0 before it, and for CPUs.
int found_multiprocessors();

/// Sets the input type of matrix products on the CPU (ops/products.hpp), as the job says.
/// Error(unavailable) if this processor cannot.
void choose_products(const Job& job);

/// The same on all ranks, which then multiply in the same way: in float32, if the job leaves the
/// choice to the processors and these differ. Errors as choose_products. Collective.
void agree_on_products(const comm::Group& world, const Job& job);

/// For each rank of the world the bytes of GPU memory that it may use: the free memory of its GPU,
/// divided equally among the ranks that share the GPU. Empty for the CPU. Collective.
std::vector<std::int64_t> free_memory_of_ranks(const comm::Group& world, Device device);

/// The node of each rank of the world (ranks that share memory, by MPI): equal numbers for ranks of
/// one node. Collective.
std::vector<int> gather_nodes(const comm::Group& world);

/// The relative speed of each rank of the world; the fastest has 1. Measured with GEMMs of `dtype`
/// on all ranks at the same time, for about a quarter of a second. Rounded to 1/16, so that similar
/// ranks count as equal. Collective.
std::vector<double> measure_speeds(const comm::Group& world, DType dtype, Device device,
                                   const Numerics& numerics);

/// What a rank reaches at best while all others measure, too.
struct Peaks {
  double flops_per_s = 0;  ///< of a matrix product
  double bytes_per_s = 0;  ///< of a copy in the memory of its device: read and written
};
/// Measured for about 0.1 s, with a product of `dtype` and 1024 channels, and a copy of 32 MiB, on
/// a GPU of 128 MiB. This memory is not counted in peaks of memory. Collective.
Peaks measure_peaks(const comm::Group& world, DType dtype, Device device, const Numerics& numerics);

/// Peak resident set size of this process, on the host.
std::int64_t peak_memory_bytes();

}  // namespace reelmesh
